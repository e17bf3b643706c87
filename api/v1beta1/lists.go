package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// AddressRanges are CIDRs and ranges from a first to a last address.
//
// The rules of the schema refuse what one entry can get wrong, in this order:
//
//   - An entry is a CIDR, or two addresses around a dash, where white space may
//     be. isIP and isCIDR refuse zones and IPv4-mapped addresses.
//   - A CIDR begins at its network address.
//   - Both ends are of one family, told by dots and colons. This also refuses
//     dotted decimals in IPv6 ranges, which the rule on their order cannot read.
//   - An IPv4 range is not reversed; an IPv6 range is not reversed. CEL does not
//     order addresses, so both ends become lists of numbers, of which none of the
//     first may exceed its counterpart unless one before it is less. IPv4 is split
//     at the dots. In IPv6, "::" is first written out as zeros, then each group
//     becomes a hexadecimal floating-point number ("ff" is "0xffp0"), the one form
//     in which CEL reads hexadecimal.
//   - Both ends are addresses that a Service can have.
//
// Text is cut with indexOf and substring where it is long, because the API
// server estimates the cost of a rule, and knows no length of what split
// returns. addr.ParseRange reads the same text in Go; a test holds the two
// together.
//
// +kubebuilder:object:generate=false
// +listType=set
// +kubebuilder:validation:MinItems=1
// +kubebuilder:validation:MaxItems=64
// +kubebuilder:validation:items:MaxLength=96
// +kubebuilder:validation:items:XValidation:rule="self.contains('-') ? isIP(self.substring(0, self.indexOf('-')).trim()) && isIP(self.substring(self.indexOf('-') + 1).trim()) : isCIDR(self.trim())",message="must be a CIDR such as 192.0.2.0/24 (for one address 192.0.2.10/32) or a range such as 192.0.2.10-192.0.2.99; addresses without zone, IPv4 not written as ::ffff:192.0.2.10"
// +kubebuilder:validation:items:XValidation:rule="!isCIDR(self.trim()) || cidr(self.trim().substring(0, self.trim().indexOf('/')) + (self.contains(':') ? '/128' : '/32')).containsIP(cidr(self.trim()).masked().ip())",message="a CIDR must begin at its network address: write 192.0.2.0/24, not 192.0.2.7/24, or write a range"
// +kubebuilder:validation:items:XValidation:rule="!self.contains('-') || !isIP(self.substring(0, self.indexOf('-')).trim()) || !isIP(self.substring(self.indexOf('-') + 1).trim()) || !(self.contains('.') && self.contains(':'))",message="both ends of a range must be of one family: make it two entries; write IPv6 without dotted decimals"
// +kubebuilder:validation:items:XValidation:rule="!self.contains('-') || !isIP(self.substring(0, self.indexOf('-')).trim()) || !isIP(self.substring(self.indexOf('-') + 1).trim()) || self.contains(':') || [[self.substring(0, self.indexOf('-')).trim().split('.', 4).map(g, int(g)), self.substring(self.indexOf('-') + 1).trim().split('.', 4).map(g, int(g))]].all(e, [0, 1, 2, 3].all(i, e[0][i] <= e[1][i] || [0, 1, 2, 3].exists(j, j < i && e[0][j] < e[1][j])))",message="the range is reversed: write the lower address first"
// +kubebuilder:validation:items:XValidation:rule="!self.contains('-') || !isIP(self.substring(0, self.indexOf('-')).trim()) || !isIP(self.substring(self.indexOf('-') + 1).trim()) || self.contains('.') || [[('0x' + self.substring(0, self.indexOf('-')).trim().replace('::', ':' + '0:0:0:0:0:0:0:0:'.substring(2 * self.substring(0, self.indexOf('-')).trim().split(':', 10).filter(g, size(g) > 0).size())).replace(':', 'p0:0x') + 'p0').split(':', 10).filter(g, g != '0xp0').map(g, int(double(g))), ('0x' + self.substring(self.indexOf('-') + 1).trim().replace('::', ':' + '0:0:0:0:0:0:0:0:'.substring(2 * self.substring(self.indexOf('-') + 1).trim().split(':', 10).filter(g, size(g) > 0).size())).replace(':', 'p0:0x') + 'p0').split(':', 10).filter(g, g != '0xp0').map(g, int(double(g)))]].all(e, [0, 1, 2, 3, 4, 5, 6, 7].all(i, e[0][i] <= e[1][i] || [0, 1, 2, 3, 4, 5, 6, 7].exists(j, j < i && e[0][j] < e[1][j])))",message="the range is reversed: write the lower address first"
// +kubebuilder:validation:items:XValidation:rule="self.contains('-') ? !isIP(self.substring(0, self.indexOf('-')).trim()) || !isIP(self.substring(self.indexOf('-') + 1).trim()) || [ip(self.substring(0, self.indexOf('-')).trim()), ip(self.substring(self.indexOf('-') + 1).trim())].all(a, a.isGlobalUnicast() || a.family() == 4 && a.isLinkLocalUnicast()) : !isCIDR(self.trim()) || [cidr(self.trim()).ip()].all(a, a.isGlobalUnicast() || a.family() == 4 && a.isLinkLocalUnicast())",message="must hold unicast addresses that other machines can reach: not 0.0.0.0 or ::, no loopback, multicast, broadcast or IPv6 link-local addresses"
type AddressRanges []string

// ObjectNames are the names of objects of one kind.
//
// +kubebuilder:object:generate=false
// +listType=set
// +kubebuilder:validation:MaxItems=64
// +kubebuilder:validation:items:MaxLength=253
// +kubebuilder:validation:items:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="must be the name of an object: lower case letters, digits, dashes and dots, such as router-a"
type ObjectNames []string

// Selectors select objects by their labels: those that at least one of them
// matches.
//
// The rules check the operators. They reach matchExpressions by index and
// not with all(), because the API server takes a list without a limit of its
// own for a very long one, and refuses the rule as too expensive. Other
// mistakes, such as a label key with white space, become a condition.
//
// +kubebuilder:object:generate=false
// +listType=atomic
// +kubebuilder:validation:MaxItems=16
// +kubebuilder:validation:items:XValidation:rule="!has(self.matchExpressions) || size(self.matchExpressions) <= 16",message="at most 16 matchExpressions may be in one selector"
// +kubebuilder:validation:items:XValidation:rule="!has(self.matchExpressions) || [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15].all(i, i >= size(self.matchExpressions) || (self.matchExpressions[i].operator in ['In', 'NotIn'] ? has(self.matchExpressions[i].values) && size(self.matchExpressions[i].values) > 0 : self.matchExpressions[i].operator in ['Exists', 'DoesNotExist'] && (!has(self.matchExpressions[i].values) || size(self.matchExpressions[i].values) == 0)))",message="the operator of each of matchExpressions must be In or NotIn, with values, or Exists or DoesNotExist, without values"
type Selectors []metav1.LabelSelector
