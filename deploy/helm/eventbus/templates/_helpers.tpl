{{- define "eventbus.labels" -}}
app.kubernetes.io/name: eventbus
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "eventbus.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "eventbus.redisSecret" -}}
{{ .Values.redis.existingSecret | default (printf "%s-redis" .Release.Name) }}
{{- end }}

{{- /* A Deployment of one worker: component, replicas, args, volumes (name → path and source). */ -}}
{{- define "eventbus.worker" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .Release.Name }}-{{ .component }}
  labels:
    {{- include "eventbus.labels" . | nindent 4 }}
    app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | quote }}
spec:
  replicas: {{ .replicas }}
  selector:
    matchLabels:
      {{- include "eventbus.labels" . | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "eventbus.labels" . | nindent 8 }}
      annotations:
        # the pods start again with another configuration
        checksum/config: {{ printf "%s %s" .Values.notify.rules .Values.redis.url | sha256sum }}
    spec:
      automountServiceAccountToken: false
      enableServiceLinks: false  # variables such as EVENTBUS_PORT are no settings
      # above EVENTBUS_DRAIN_S (10 s), or the drain is cut off
      terminationGracePeriodSeconds: 20
      securityContext:
        runAsNonRoot: true
        runAsUser: 10001
        runAsGroup: 10001
        fsGroup: 10001
        seccompProfile: {type: RuntimeDefault}
      {{- with .Values.imagePullSecrets }}
      imagePullSecrets: {{ toJson . }}
      {{- end }}
      containers:
        - name: {{ .component }}
          image: {{ include "eventbus.image" . | quote }}
          imagePullPolicy: {{ .Values.image.pullPolicy }}
          args: {{ concat (list "eventbus" "worker" .component) .args (list "--metrics-port" "0.0.0.0:9108") | toJson }}
          env:
            - name: EVENTBUS_REDIS_URL
              valueFrom: {secretKeyRef: {name: {{ include "eventbus.redisSecret" . }}, key: url}}
            {{- range $name, $value := .Values.env }}
            - {name: {{ $name }}, value: {{ $value | quote }}}
            {{- end }}
          ports:
            - {name: health, containerPort: 9108}
            {{- if eq .component "api" }}
            - {name: https, containerPort: 6443}
            {{- end }}
          livenessProbe:
            httpGet: {path: /livez, port: health}
            periodSeconds: 10
            failureThreshold: 6
          readinessProbe:
            httpGet: {path: /readyz, port: health}
            periodSeconds: 5
          resources: {{ toJson .Values.resources }}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: {drop: [ALL]}
          volumeMounts:
            - {name: tmp, mountPath: /tmp}
            - {name: state, mountPath: /var/lib/eventbus}
            {{- range $name, $volume := .volumes }}
            - {name: {{ $name }}, mountPath: {{ $volume.path }}, readOnly: true}
            {{- end }}
      volumes:
        - {name: tmp, emptyDir: {}}
        - {name: state, emptyDir: {}}
        {{- range $name, $volume := .volumes }}
        - {{ merge (dict "name" $name) $volume.source | toJson }}
        {{- end }}
      {{- with .Values.nodeSelector }}
      nodeSelector: {{ toJson . }}
      {{- end }}
      {{- with .Values.tolerations }}
      tolerations: {{ toJson . }}
      {{- end }}
      {{- with .Values.affinity }}
      affinity: {{ toJson . }}
      {{- end }}
{{- end }}
