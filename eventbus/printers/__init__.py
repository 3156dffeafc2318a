"""Objects, events and numbers as people read them: tables, YAML, JSON and JSONPath. Fetches nothing."""
