{{/*
The CRDs in files/crds, as templates: Helm creates what lies in crds/ once and never upgrades it. `keep` makes them, and
so everybody's resources, outlive the release.
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
{{- fail (printf "The chart of %s has no CRD in files/crds. Mend: make manifests." (include "operator.process" .)) }}
{{- end }}
{{- end -}}
{{- end -}}
