"""Emits events with the OpenTelemetry SDK: `otlp_log.py ENDPOINT COUNT`; then a log line that is no event."""

from __future__ import annotations

import sys

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.resources import Resource


def main(endpoint: str, count: int) -> None:
    provider = LoggerProvider(resource=Resource.create({"service.name": "shop-api", "service.namespace": "shop"}))
    exporter = OTLPLogExporter(endpoint=endpoint, compression=Compression.Gzip)
    provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
    logger = provider.get_logger("checkout")
    for number in range(count):
        logger.emit(
            LogRecord(
                timestamp=1_770_372_930_000_000_000 + number,
                severity_number=SeverityNumber.ERROR,
                body=f"order {number}: card declined",
                event_name="shop.order.payment_failed",
                attributes={"eventbus.object.kind": "Order", "eventbus.object.name": str(number)},
            )
        )
    logger.emit(LogRecord(severity_number=SeverityNumber.INFO, body="a plain log line"))
    assert provider.force_flush()
    provider.shutdown()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
