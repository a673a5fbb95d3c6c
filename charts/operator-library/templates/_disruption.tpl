{{/* At most one unavailable replica. Not rendered for a single replica: it would only block the drain of its node. */}}
{{- define "operator.disruptionBudget" -}}
{{- if and .Values.podDisruptionBudget.enabled (gt (include "operator.replicas" . | int64) 1) -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "operator.fullname" . | quote }}
  namespace: {{ include "operator.namespace" . | quote }}
  labels: {{- include "operator.labels" . | nindent 4 }}
spec:
  maxUnavailable: 1
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels: {{- include "operator.selectorLabels" . | nindent 6 }}
{{- end -}}
{{- end -}}
