"""The long-lived processes: each a line of the Procfile and a service of compose.yaml."""
