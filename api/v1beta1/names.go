package v1beta1

// Annotations that users put on a Service of type LoadBalancer.
const (
	// AnnotationAddresses asks for certain addresses, separated by commas
	// ("192.0.2.10,2001:db8::10"): up to 16, of each family as many as one
	// likes. It is used in place of spec.loadBalancerIP, which Kubernetes has
	// deprecated.
	AnnotationAddresses = GroupName + "/addresses"
	// AnnotationPool asks for an address of one IPAddressPool, by its name; the
	// pool need not have autoAssign. Of several names, separated by commas, each
	// family is served from the first that can: "lan-v4,lan-v6".
	AnnotationPool = GroupName + "/pool"
	// AnnotationShareKey lets Services with the same value, of any namespace,
	// share an address, as long as no two of them have a port and protocol in
	// common.
	AnnotationShareKey = GroupName + "/share-key"
)

// MetalLB's annotations that mean the same, to be appended to one of
// MetalLBPrefixes.
const (
	// MetalLBAddresses is MetalLB's name of AnnotationAddresses.
	MetalLBAddresses = "loadBalancerIPs"
	// MetalLBPool is MetalLB's name of AnnotationPool.
	MetalLBPool = "address-pool"
	// MetalLBShareKey is MetalLB's name of AnnotationShareKey.
	MetalLBShareKey = "allow-shared-ip"
)

// MetalLBPrefixes are the prefixes of MetalLB's annotations, the newer first.
func MetalLBPrefixes() []string { return []string{"metallb.io/", "metallb.universe.tf/"} }

// Condition types.
const (
	// ConditionReady is on every kind of this group. True: the object is valid
	// and in use. False: the reason and the message say what is wrong, and the
	// object takes no part until it is put right; everything else goes on.
	ConditionReady = "Ready"
	// ConditionHasCapacity is on pools. True: it can give an address of each of
	// its families. False: the message says why not.
	ConditionHasCapacity = "HasCapacity"
	// ConditionAllocated is on Services of type LoadBalancer. True: the Service
	// has the addresses it asks for. False: the message says why not.
	ConditionAllocated = GroupName + "/Allocated"
)

// Reasons of conditions and Events that tell of success. The reasons of
// failures come from the code that finds them.
const (
	// ReasonReady goes with ConditionReady when it is True.
	ReasonReady = "Ready"
	// ReasonHasCapacity goes with ConditionHasCapacity when it is True.
	ReasonHasCapacity = "HasCapacity"
	// ReasonAllocated goes with ConditionAllocated when it is True, and with
	// the Event that tells which addresses a Service got.
	ReasonAllocated = "Allocated"
	// ReasonReleased goes with the Event that tells which addresses a Service
	// gave back while it goes on existing.
	ReasonReleased = "Released"
)

// Where the key is by which nodes know each other's hellos, in the namespace that
// Fairlead runs in: the controller makes the Secret, the speakers read it.
const (
	// HelloSecret is the name of the Secret.
	HelloSecret = "fairlead-hello"
	// HelloSecretKey is the key of its data.
	HelloSecretKey = "key"
)
