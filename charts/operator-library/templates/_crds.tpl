{{/*
CRDs of files/crds, as templates, because Helm never upgrades CRDs in crds/. The `keep` policy preserves the CRDs, and so
all resources, when the release is uninstalled.
*/}}
{{- define "operator.crds" -}}
{{- if .Values.crds.enabled -}}
{{- range $_, $content := .Files.Glob "files/crds/*.yaml" }}
{{- $crd := $content | toString | fromYaml }}
{{- $metadata := $crd.metadata }}
{{- $labels := merge (include "operator.labels" $ | fromYaml) (default dict $metadata.labels) }}
{{- $annotations := merge (dict "helm.sh/resource-policy" "keep") (default dict $metadata.annotations) }}
---
{{ merge (dict "metadata" (merge (dict "labels" $labels "annotations" $annotations) $metadata)) $crd | toYaml }}
{{- else }}
{{- fail (printf "The chart of %s has no CRDs in files/crds. Run `make manifests` to generate them." (include "operator.process" .)) }}
{{- end }}
{{- end -}}
{{- end -}}
