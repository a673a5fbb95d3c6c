{{/*
Protection from deletion of every CRD of files/crds with spec.deletionProtection. The API server evaluates it without
the operator. It holds until the release is uninstalled.
*/}}
{{- define "operator.deletionProtection" -}}
{{- range $_, $content := .Files.Glob "files/crds/*.yaml" }}
{{- $spec := ($content | toString | fromYaml).spec }}
{{- $fields := (first $spec.versions).schema.openAPIV3Schema.properties.spec.properties }}
{{- if hasKey $fields "deletionProtection" }}
{{- $name := printf "%s-protect-%s" (include "operator.fullname" $) $spec.names.plural }}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: {{ $name | quote }}
  labels: {{- include "operator.labels" $ | nindent 4 }}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
      - apiGroups: [{{ $spec.group | quote }}]
        apiVersions: ["*"]
        resources: [{{ $spec.names.plural | quote }}]
        operations: [DELETE]
        scope: Namespaced
  validations:
    - expression: "!has(oldObject.spec.deletionProtection) || !oldObject.spec.deletionProtection"
      messageExpression: >-
        '{{ $spec.names.kind }} ' + oldObject.metadata.name + ' is protected from deletion. To delete it, set
        spec.deletionProtection to false first.'
      message: "spec.deletionProtection is true: set it to false before you delete the resource."
      reason: Forbidden
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ $name | quote }}
  labels: {{- include "operator.labels" $ | nindent 4 }}
spec:
  policyName: {{ $name | quote }}
  validationActions: [Deny]
{{- end }}
{{- end }}
{{- end -}}
