{{- define "operator.deployment" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "operator.fullname" . | quote }}
  namespace: {{ include "operator.namespace" . | quote }}
  labels: {{- merge (include "operator.labels" . | fromYaml) .Values.deploymentLabels | toYaml | nindent 4 }}
  {{- with .Values.deploymentAnnotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  # All replicas serve webhooks and metrics and keep their caches in sync; only the leaders reconcile.
  replicas: {{ include "operator.replicas" . }}
  strategy:
    type: RollingUpdate
    rollingUpdate:
      maxSurge: 1
      maxUnavailable: 0
  revisionHistoryLimit: 2
  selector:
    matchLabels: {{- include "operator.selectorLabels" . | nindent 6 }}
  template:
    metadata:
      labels: {{- include "operator.podLabels" . | nindent 8 }}
      {{- with merge (deepCopy .Values.podAnnotations) .Values.global.commonAnnotations }}
      annotations: {{- toYaml . | nindent 8 }}
      {{- end }}
    spec: {{- include "operator.pod" . | nindent 6 }}
{{- end -}}

{{/* The chart's labels take precedence over podLabels, and these over global.commonLabels. */}}
{{- define "operator.podLabels" -}}
{{- merge (include "operator.labels" . | fromYaml) .Values.podLabels .Values.global.commonLabels | toYaml -}}
{{- end -}}

{{- define "operator.pod" -}}
serviceAccountName: {{ include "operator.serviceAccountName" . | quote }}
automountServiceAccountToken: true
enableServiceLinks: false
{{- if .Values.hostNetwork }}
hostNetwork: true
dnsPolicy: ClusterFirstWithHostNet
{{- end }}
terminationGracePeriodSeconds: 30
securityContext: {{- include "operator.podSecurity" . | nindent 2 }}
{{- include "operator.pullSecrets" . }}
{{- include "operator.placement" . }}
containers:
  - name: operator
    image: {{ include "operator.image" . | quote }}
    imagePullPolicy: {{ .Values.image.pullPolicy }}
    args: {{- include "operator.arguments" . | nindent 6 }}
    {{- with .Values.extraEnv }}
    env: {{- toYaml . | nindent 6 }}
    {{- end }}
    ports:
      - name: probes
        containerPort: {{ int64 .Values.probePort }}
        protocol: TCP
      {{- if .Values.metrics.enabled }}
      - name: metrics
        containerPort: {{ int64 .Values.metrics.port }}
        protocol: TCP
      {{- end }}
      {{- if .Values.webhook.enabled }}
      - name: webhook
        containerPort: {{ int64 .Values.webhook.port }}
        protocol: TCP
      {{- end }}
    resources: {{- toYaml .Values.resources | nindent 6 }}
    startupProbe:
      httpGet: {path: /healthz, port: probes}
      {{- toYaml .Values.startupProbe | nindent 6 }}
    livenessProbe:
      httpGet: {path: /healthz, port: probes}
      {{- toYaml .Values.livenessProbe | nindent 6 }}
    readinessProbe:
      httpGet: {path: /readyz, port: probes}
      {{- toYaml .Values.readinessProbe | nindent 6 }}
    securityContext: {{- include "operator.containerSecurity" . | nindent 6 }}
    {{- with concat (include "operator.certificatesMounts" . | fromYamlArray) .Values.extraVolumeMounts }}
    volumeMounts: {{- toYaml . | nindent 6 }}
    {{- end }}
{{- with concat (include "operator.certificatesVolumes" . | fromYamlArray) .Values.extraVolumes }}
volumes: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Number of replicas; the deprecated name has no default, so it is set only by users. */}}
{{- define "operator.replicas" -}}
{{- int64 (default .Values.replicaCount .Values.replicas) -}}
{{- end -}}

{{/* Security contexts, by default of the Pod Security Standard "restricted", with a read-only root file system. */}}
{{- define "operator.podSecurity" -}}
{{- toYaml .Values.podSecurityContext -}}
{{- end -}}

{{- define "operator.containerSecurity" -}}
{{- toYaml .Values.securityContext -}}
{{- end -}}

{{/* Secrets of this chart and those of global.imagePullSecrets, which may be plain names, each once. */}}
{{- define "operator.pullSecrets" -}}
{{- $secrets := .Values.imagePullSecrets }}
{{- range .Values.global.imagePullSecrets }}
{{- $secrets = append $secrets (ternary (dict "name" .) . (kindIs "string" .)) }}
{{- end }}
{{- with $secrets | uniq }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/*
Scheduling constraints; a value of the chart replaces the global one. By default the replicas prefer different nodes and
different zones.
*/}}
{{- define "operator.placement" -}}
{{- $selected := dict "matchLabels" (include "operator.selectorLabels" . | fromYaml) }}
{{- include "operator.nodes" . }}
affinity:
{{- with default .Values.global.affinity .Values.affinity }}
  {{- toYaml . | nindent 2 }}
{{- else }}
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector: {{- toYaml $selected | nindent 12 }}
{{- end }}
topologySpreadConstraints:
{{- $zones := list (dict "topologyKey" "topology.kubernetes.io/zone" "whenUnsatisfiable" "ScheduleAnyway") }}
{{- $whole := dict "maxSkew" 1 "whenUnsatisfiable" "DoNotSchedule" "labelSelector" $selected }}
{{- range default $zones (default .Values.topologySpreadConstraints .Values.topologySpread) }}
  - {{- merge (deepCopy .) $whole | toYaml | nindent 4 }}
{{- end }}
{{- with default .Values.global.priorityClassName .Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- end -}}

{{/* Nodes on which the operator's pods and those of `helm test` may run. */}}
{{- define "operator.nodes" -}}
{{- with default .Values.global.nodeSelector .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with default .Values.global.tolerations .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The operator takes the last of several values of a flag, so extraArgs take precedence. */}}
{{- define "operator.arguments" -}}
{{ include "operator.ownArguments" . }}
{{- with .Values.extraArgs }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Flags instead of environment variables, so that extraEnv cannot contradict or duplicate them. */}}
{{- define "operator.ownArguments" -}}
- --operator-name={{ include "operator.process" . }}
- --leader-elect
- --leader-elect-namespace={{ include "operator.namespace" . }}
- --leader-elect-lease-duration={{ int64 .Values.leaderElection.leaseDuration }}
- --leader-elect-renew-deadline={{ int64 .Values.leaderElection.renewDeadline }}
- --leader-elect-retry-period={{ int64 .Values.leaderElection.retryPeriod }}
- --shards={{ int64 .Values.shards }}
- --resync={{ int64 .Values.resync }}
- --workers={{ int64 .Values.workers }}
- --create-timeout={{ int64 .Values.createTimeout }}
- --upgrade-timeout={{ int64 .Values.upgradeTimeout }}
- --log-level={{ .Values.logLevel }}
- --log-format={{ .Values.logFormat }}
- --image-repository={{ include "operator.mirrored" (list . .Values.operandImageRepository) }}
- --agent-image={{ include "operator.agentImage" . }}
{{- if eq (get .Values.rbac "writeSecrets" | toString) "false" }}
- --no-write-secrets
{{- end }}
{{- with .Values.policy }}
{{- if .requireTLS }}
- --require-tls
{{- end }}
{{- if .requireAuth }}
- --require-auth
{{- end }}
{{- with .allowedRegistries }}
- --allowed-registries={{ join "," . }}
{{- end }}
{{- if .allowHostPath }}
- --allow-host-path
{{- end }}
{{- with .approvalNamespaces }}
- {{ printf "--approval-namespaces=%s" (join "," .) | quote }}
{{- end }}
{{- end }}
{{- with include "operator.peers" . }}
- {{ printf "--operator-peers=%s" . | quote }}
{{- end }}
- --health-probe-bind-address=:{{ int64 .Values.probePort }}
- --metrics-bind-address={{ ternary (printf ":%d" (int64 .Values.metrics.port)) "0" .Values.metrics.enabled }}
- {{ ternary "--metrics-secure" "--no-metrics-secure" .Values.metrics.secure }}
- --webhook-bind-address={{ ternary (printf ":%d" (int64 .Values.webhook.port)) "0" .Values.webhook.enabled }}
{{- if and .Values.webhook.enabled .Values.webhook.clientCA }}
- --webhook-client-ca=/webhook-client-ca/ca.crt
{{- end }}
{{- with include "operator.certificatesArguments" . }}
{{ . }}
{{- end }}
{{- range $flag, $value := .Files.Get "files/flags.yaml" | fromYaml }}
{{- $given := get $.Values $value }}
- {{ $flag }}={{ ternary (int64 $given) $given (kindIs "float64" $given) }}
{{- end }}
{{- with .Values.otlpEndpoint }}
- --otlp-endpoint={{ . }}
{{- end }}
{{- if .Values.profiling }}
- --profiling
{{- end }}
{{- with .Values.watchNamespaces }}
- --watch-namespace={{ join "," . }}
{{- end }}
{{- end -}}
