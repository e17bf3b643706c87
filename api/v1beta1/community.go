package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Community gives names to BGP communities, which BGPAdvertisements can then
// use.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=communities,scope=Cluster,shortName=flcommunity,categories=fairlead
// +kubebuilder:printcolumn:name="Names",type=string,JSONPath=`.spec.communities[*].name`
// +kubebuilder:printcolumn:name="Values",type=string,priority=1,JSONPath=`.spec.communities[*].value`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Community struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec has the names.
	// +optional
	Spec CommunitySpec `json:"spec,omitzero"`
	// status says whether the names are in use. It is written by Fairlead; do not
	// edit it.
	// +optional
	Status CommunityStatus `json:"status,omitzero"`
}

// CommunitySpec has the names.
type CommunitySpec struct {
	// communities are names and the communities that they stand for. If an older
	// Community gives a name another value, the older one's value counts.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Communities []CommunityAlias `json:"communities,omitempty"`
}

// CommunityAlias is a name of one community.
//
// +kubebuilder:object:generate=false
type CommunityAlias struct {
	// name is the name of the community: letters, digits, dashes, dots and
	// underscores, beginning with a letter, and not one of the well-known names
	// that BGPAdvertisements accept. For example vpn-only.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z]([-_.A-Za-z0-9]*[A-Za-z0-9])?$')",message="must begin with a letter, end in a letter or digit, and have only these, dashes, dots and underscores, such as vpn-only"
	// +kubebuilder:validation:XValidation:rule="!(self in ['no-export', 'no-advertise', 'no-export-subconfed', 'no-peer', 'blackhole', 'graceful-shutdown', 'accept-own'])",message="is the well-known name of a community: use it as it is, or choose another"
	Name string `json:"name"`

	// value is "asn:value" (RFC 1997) with both halves 0 to 65535, or
	// "large:asn:value:value" (RFC 8092) with each part 0 to 4294967295. For
	// example 64500:100.
	// +required
	// +kubebuilder:validation:MaxLength=38
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9]{1,5}:[0-9]{1,5}$') && self.split(':', 2).all(half, int(half) <= 65535) || self.matches('^large(:[0-9]{1,10}){3}$') && self.substring(6).split(':', 3).all(part, int(part) <= 4294967295)",message="must be asn:value with both halves 0 to 65535, such as 64500:100, or large:asn:value:value"
	Value string `json:"value"`
}

// CommunityStatus is the observed state of the names.
type CommunityStatus struct {
	// conditions say whether the names are in use. Ready is True when they can be
	// used; its message may say that another Community has some of them.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
