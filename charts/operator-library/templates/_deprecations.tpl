{{/*
Warnings about deprecated values, for NOTES.txt. They have no defaults, so a value that exists was set by the user. Arguments, as
a list: the values of an operator, and the prefix of their names.
*/}}
{{- define "operator.deprecations" -}}
{{- $values := index . 0 -}}
{{- $prefix := index . 1 -}}
{{- range $old, $new := dict "replicas" "replicaCount" "topologySpread" "topologySpreadConstraints" }}
{{- if hasKey $values $old }}

WARNING: the value {{ $prefix }}{{ $old }} is deprecated: rename it to {{ $prefix }}{{ $new }}. Until then, it applies instead of that.
{{- end }}
{{- end }}
{{- end -}}
