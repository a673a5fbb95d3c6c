{{- define "operator.metricsService" -}}
{{- if .Values.metrics.enabled -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ include "operator.fullname" . }}-metrics
  namespace: {{ .Release.Namespace | quote }}
  labels: {{- include "operator.labels" . | nindent 4 }}
spec:
  selector: {{- include "operator.selectorLabels" . | nindent 4 }}
  ports:
    - name: metrics
      port: {{ .Values.metrics.port }}
      targetPort: metrics
      protocol: TCP
{{- end -}}
{{- end -}}
