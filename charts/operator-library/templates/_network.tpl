{{/*
NetworkPolicy that allows all ingress that the operator needs, also in a namespace that denies everything by default, and
with restrictEgress all egress. The kubelet's probes have no peers: network plugins admit the node of a pod, or cannot
distinguish it. Calls of the API server have none by default: their source is its address, an address of the overlay
network, or a tunnel's pod, and a policy that guesses wrong would refuse every change of a resource.
*/}}
{{- define "operator.networkPolicy" -}}
{{- if .Values.networkPolicy.enabled -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ include "operator.fullname" . | quote }}
  namespace: {{ include "operator.namespace" . | quote }}
  labels: {{- include "operator.labels" . | nindent 4 }}
spec:
  podSelector:
    matchLabels: {{- include "operator.selectorLabels" . | nindent 6 }}
  policyTypes: {{ ternary "[Ingress, Egress]" "[Ingress]" .Values.networkPolicy.restrictEgress }}
  ingress:
    - ports:
        - port: probes
          protocol: TCP
    {{- if .Values.metrics.enabled }}
    - ports:
        - port: metrics
          protocol: TCP
      {{- with .Values.networkPolicy.metricsFrom }}
      from: {{- toYaml . | nindent 8 }}
      {{- end }}
    {{- end }}
    {{- if .Values.webhook.enabled }}
    - ports:
        - port: webhook
          protocol: TCP
      {{- with .Values.networkPolicy.apiServer }}
      from: {{- toYaml . | nindent 8 }}
      {{- end }}
    {{- end }}
  {{- if .Values.networkPolicy.restrictEgress }}
  egress:
    {{- include "operator.reachesCluster" . | nindent 4 }}
    - to:
        - namespaceSelector: {}
          podSelector:
            matchLabels:
              app.kubernetes.io/managed-by: {{ include "operator.process" . }}
    {{- with .Values.otlpEndpoint }}
    - ports:
        - port: {{ include "operator.portOf" . }}
          protocol: TCP
    {{- end }}
  {{- end }}
{{- end -}}
{{- end -}}

{{/*
Peers as which the operator connects to databases, as JSON; their NetworkPolicies admit them. On the network of the host,
the operator has no address of its own, so that its peers are unknown unless a value names them.
*/}}
{{- define "operator.peers" -}}
{{- if .Values.operatorPeers -}}
{{- toJson .Values.operatorPeers -}}
{{- else if not .Values.hostNetwork -}}
{{- $namespace := dict "matchLabels" (dict "kubernetes.io/metadata.name" (include "operator.namespace" .)) -}}
{{- $pods := dict "matchLabels" (include "operator.selectorLabels" . | fromYaml) -}}
{{- list (dict "namespaceSelector" $namespace "podSelector" $pods) | toJson -}}
{{- end -}}
{{- end -}}

{{/* DNS and the API server, by port, because they may run outside of pods. */}}
{{- define "operator.reachesCluster" -}}
- ports:
    - port: 53
      protocol: UDP
    - port: 53
      protocol: TCP
    {{- range .Values.networkPolicy.apiServerPorts }}
    - port: {{ int64 . }}
      protocol: TCP
    {{- end }}
{{- end -}}

{{/* Port of a URL: the explicit one, or the default of the scheme. */}}
{{- define "operator.portOf" -}}
{{- $url := urlParse . -}}
{{- regexFind ":[0-9]+$" $url.host | trimPrefix ":" | default (ternary "443" "80" (eq $url.scheme "https")) -}}
{{- end -}}

{{/* Note about ports that the NetworkPolicy leaves open to all sources. */}}
{{- define "operator.openPorts" -}}
{{- if and .Values.webhook.enabled (not .Values.hostNetwork) (not (and .Values.networkPolicy.enabled .Values.networkPolicy.apiServer)) }}

All pods can connect to the port of the webhook. To admit the API server only, set networkPolicy.apiServer to the source of
its connections (docs/how-to/restrict-network-access.md).
{{- end }}
{{- end -}}
