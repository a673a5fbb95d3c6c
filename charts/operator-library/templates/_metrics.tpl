{{/*
Metrics: a Service; the right to read them, for whoever binds it to somebody; ServiceMonitors for the Prometheus operator,
rendered whether its CRDs can be seen or not: `helm template` and GitOps tools see no cluster.
*/}}
{{- define "operator.metrics" -}}
{{- if .Values.metrics.enabled }}
---
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
      port: {{ int64 .Values.metrics.port }}
      targetPort: metrics
      protocol: TCP
{{- if .Values.metrics.serviceMonitor.enabled }}
---
{{ include "operator.ownMonitor" . }}
{{- end }}
{{- end }}
{{- with .Values.metrics.serviceMonitor }}
{{- if and .enabled .operands.enabled }}
---
{{ include "operator.operandMonitor" $ }}
{{- end }}
{{- end }}
{{- end -}}

{{/*
The certificate is verified by the CA beside it, which Prometheus reads from the Secret, for the Service's name. What the
operator tells of a resource bears that resource's namespace, not its own pod's (honorLabels).
*/}}
{{- define "operator.ownMonitor" -}}
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata:
  name: {{ include "operator.fullname" . | quote }}
  namespace: {{ .Release.Namespace | quote }}
  labels: {{- include "operator.monitorLabels" . | nindent 4 }}
spec:
  selector:
    matchLabels: {{- include "operator.selectorLabels" . | nindent 6 }}
  endpoints:
    - port: metrics
      path: /metrics
      honorLabels: true
      {{- include "operator.interval" . | nindent 6 }}
      {{- if .Values.metrics.secure }}
      scheme: https
      bearerTokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token
      tlsConfig:
        serverName: {{ include "operator.fullname" . }}-metrics.{{ .Release.Namespace }}.svc
        ca:
          secret:
            name: {{ include "operator.certificatesSecret" . | quote }}
            key: ca.crt
      {{- else }}
      scheme: http
      {{- end }}
{{- end -}}

{{/*
Whatever the operator runs that has a port called metrics: found by the label that the operator gives its Services, so
there is no object a resource. Each target is told by the resource's name.
*/}}
{{- define "operator.operandMonitor" -}}
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata:
  name: {{ include "operator.fullname" . }}-operands
  namespace: {{ .Release.Namespace | quote }}
  labels: {{- include "operator.monitorLabels" . | nindent 4 }}
spec:
  selector:
    matchLabels:
      app.kubernetes.io/managed-by: {{ include "operator.process" . }}
  namespaceSelector:
    {{- with .Values.watchNamespaces }}
    matchNames: {{- toYaml . | nindent 6 }}
    {{- else }}
    any: true
    {{- end }}
  jobLabel: app.kubernetes.io/name
  targetLabels: [app.kubernetes.io/instance]
  endpoints:
    - port: metrics
      path: /metrics
      scheme: http
      {{- include "operator.interval" . | nindent 6 }}
{{- end -}}

{{- define "operator.monitorLabels" -}}
{{- merge (include "operator.labels" . | fromYaml) .Values.metrics.serviceMonitor.labels | toYaml -}}
{{- end -}}

{{- define "operator.interval" -}}
{{- with .Values.metrics.serviceMonitor.interval -}}
interval: {{ . }}
{{- end -}}
{{- end -}}
