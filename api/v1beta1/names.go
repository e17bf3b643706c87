package v1beta1

// Annotations that users put on a Service of type LoadBalancer.
const (
	// AnnotationAddresses asks for certain addresses: one, or one of each
	// family, separated by commas ("192.0.2.10,2001:db8::10"). It is used in
	// place of spec.loadBalancerIP, which Kubernetes has deprecated.
	AnnotationAddresses = GroupName + "/addresses"
	// AnnotationPool asks for any address of one IPAddressPool, by its name;
	// the pool need not have autoAssign.
	AnnotationPool = GroupName + "/pool"
)

// Condition types.
const (
	// ConditionReady is on every kind of this group. True: the object is valid
	// and in use. False: the reason and the message say what is wrong, and the
	// object takes no part until it is put right; everything else goes on.
	ConditionReady = "Ready"
	// ConditionAllocated is on Services of type LoadBalancer. True: the Service
	// has the addresses it asks for. False: the message says why not.
	ConditionAllocated = GroupName + "/Allocated"
)

// Reasons of conditions and Events that tell of success. The reasons of
// failures come from the code that finds them.
const (
	// ReasonReady goes with ConditionReady when it is True.
	ReasonReady = "Ready"
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
