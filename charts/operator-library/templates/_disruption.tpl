{{/* At most one unavailable replica. Not rendered for a single replica: it would only block the drain of its node. */}}
{{- define "operator.disruptionBudget" -}}
{{- if and .Values.podDisruptionBudget.enabled (gt (int64 .Values.replicas) 1) -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "operator.fullname" . | quote }}
  namespace: {{ .Release.Namespace | quote }}
  labels: {{- include "operator.labels" . | nindent 4 }}
spec:
  maxUnavailable: 1
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels: {{- include "operator.selectorLabels" . | nindent 6 }}
{{- end -}}
{{- end -}}
