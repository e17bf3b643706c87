{{/* The name and namespace, in JSON, of the release that an object is of, if that is another one than this; arguments: root, object. */}}
{{- define "fairlead.anotherRelease" -}}
{{- $release := .root.Release }}
{{- $annotations := dig "metadata" "annotations" (dict) .object }}
{{- $name := index $annotations "meta.helm.sh/release-name" | default $release.Name }}
{{- $in := index $annotations "meta.helm.sh/release-namespace" | default $release.Namespace }}
{{- if or (ne $name $release.Name) (ne $in $release.Namespace) }}
{{- dict "name" $name "namespace" $in | toJson }}
{{- else }}
{{- dict | toJson }}
{{- end }}
{{- end }}

{{/* Fails if a CRD is of another release. Helm would refuse it, too, and tell of metadata and not of what to do. Arguments: root, name, leave. */}}
{{- define "fairlead.ownKind" -}}
{{- $crd := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" .name }}
{{- with include "fairlead.anotherRelease" (dict "root" .root "object" $crd) | fromJson }}
{{- fail (printf "CustomResourceDefinition %s is of release %s in namespace %s, which keeps it when it is uninstalled: %s, or give all of them to this release by kubectl annotate --overwrite crd --selector app.kubernetes.io/name=fairlead meta.helm.sh/release-name=%s meta.helm.sh/release-namespace=%s" $.name .name .namespace $.leave $.root.Release.Name $.root.Release.Namespace) }}
{{- end }}
{{- end }}

{{/* Fails if an object of this kind has a field that the chart's CRD lacks, which the API server would drop, or a version that it
lacks is stored. Without a cluster, as in helm template, there is nothing to lose. Arguments: root, crd, value. */}}
{{- define "fairlead.keepFields" -}}
{{- $crd := .crd }}
{{- $versions := list }}
{{- $schema := dict }}
{{- $group := "" }}
{{- range $crd.spec.versions }}
{{- $versions = append $versions .name }}
{{- if .storage }}
{{- $schema = .schema.openAPIV3Schema }}
{{- $group = printf "%s/%s" $crd.spec.group .name }}
{{- end }}
{{- end }}
{{- $fix := printf "which Fairlead %s does not have, so that they would be lost: upgrade to a newer version, or take them away first, or set %s=true" .root.Chart.AppVersion .value }}
{{- with lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" $crd.metadata.name }}
{{- range ((.status).storedVersions | default list) }}
{{- if not (has . $versions) }}
{{- fail (printf "%s are stored in version %s, %s" $crd.spec.names.plural . $fix) }}
{{- end }}
{{- end }}
{{- end }}
{{- if and $schema.properties.spec (.root.Capabilities.APIVersions.Has (printf "%s/%s" $group $crd.spec.names.kind)) }}
{{- range (lookup $group $crd.spec.names.kind "" "").items }}
{{- $lost := include "fairlead.lostFields" (dict "value" .spec "schema" $schema.properties.spec "path" "spec") | trim | splitList "\n" | compact }}
{{- if $lost }}
{{- fail (printf "%s %s has %s, %s" .kind (list .metadata.namespace .metadata.name | compact | join "/") (join " and " $lost) $fix) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* The paths that the API server prunes from a value of this schema, one to a line; arguments: value, schema, path. */}}
{{- define "fairlead.lostFields" -}}
{{- $schema := .schema }}
{{- $path := .path }}
{{- if and (kindIs "map" .value) (not (index $schema "x-kubernetes-preserve-unknown-fields")) }}
{{- range $key, $value := .value }}
{{- $of := dig "properties" $key $schema.additionalProperties $schema }}
{{- if $of }}
{{ include "fairlead.lostFields" (dict "value" $value "schema" $of "path" (printf "%s.%s" $path $key)) }}
{{- else }}
{{ printf "%s.%s" $path $key }}
{{- end }}
{{- end }}
{{- else if kindIs "slice" .value }}
{{- range $i, $value := .value }}
{{ include "fairlead.lostFields" (dict "value" $value "schema" $schema.items "path" (printf "%s[%d]" $path $i)) }}
{{- end }}
{{- end }}
{{- end }}
