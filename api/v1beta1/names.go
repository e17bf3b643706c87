package v1beta1

// Annotations that users put on a Service of type LoadBalancer.
const (
	// AnnotationAddresses asks for particular addresses, separated by commas
	// ("192.0.2.10,2001:db8::10"): up to 16, of either family. It takes the place
	// of spec.loadBalancerIP, which Kubernetes has deprecated.
	AnnotationAddresses = GroupName + "/addresses"
	// AnnotationPool asks for an address from an IPAddressPool, by its name; the
	// pool need not have autoAssign. With several names, separated by commas,
	// each family gets an address from the first pool that can give one:
	// "lan-v4,lan-v6".
	AnnotationPool = GroupName + "/pool"
	// AnnotationReservation asks for an address of each family from an
	// IPReservation in the same namespace, by its name. With several names,
	// separated by commas, each family gets an address from the first that can
	// give one: "web-v4,web-v6".
	AnnotationReservation = GroupName + "/reservation"
	// AnnotationShareKey lets Services of one namespace with the same value share
	// an address, as long as no two of them have a port and protocol in common.
	AnnotationShareKey = GroupName + "/share-key"
	// AnnotationShareWith names other namespaces, separated by commas: Services of
	// two namespaces share an address only if each names the other's, and they
	// have the same AnnotationShareKey.
	AnnotationShareWith = GroupName + "/share-with"
)

// AnnotationBoundedLoad is on the speaker's pods: "true" says that the
// speaker is able to give no node many more layer 2 addresses than others.
// Speakers do so while all of their pods have it.
const AnnotationBoundedLoad = GroupName + "/bounded-load"

// MetalLB's annotations that mean the same, and its note, to be appended to one of
// MetalLBPrefixes.
const (
	// MetalLBAddresses is MetalLB's name of AnnotationAddresses.
	MetalLBAddresses = "loadBalancerIPs"
	// MetalLBPool is MetalLB's name of AnnotationPool.
	MetalLBPool = "address-pool"
	// MetalLBShareKey is MetalLB's name of AnnotationShareKey.
	MetalLBShareKey = "allow-shared-ip"
	// MetalLBAllocatedFrom is where MetalLB notes which pool it took. Nothing is asked by it.
	MetalLBAllocatedFrom = "ip-allocated-from-pool"
)

// MetalLBPrefixes are the prefixes of MetalLB's annotations, the newer first.
func MetalLBPrefixes() []string { return []string{"metallb.io/", "metallb.universe.tf/"} }

// Condition types.
const (
	// ConditionReady is on every kind of this group. True: the object is valid
	// and in use. False: the reason and the message say what is wrong, and the
	// object takes no part until it is put right; everything else goes on.
	ConditionReady = "Ready"
	// ConditionHasCapacity is on pools. True: the pool can give an address of
	// each of its families. False: the message says why not.
	ConditionHasCapacity = "HasCapacity"
	// ConditionAdvertised is on pools. True: an advertisement covers the pool.
	// False: none does although addresses of the pool are held; the message says
	// what to do. Unknown: none does, and no addresses are held.
	ConditionAdvertised = "Advertised"
	// ConditionEstablished is on BGPPeers. True: each node that the peer selects
	// has a session that is up. False: the message says for each of the others
	// why not.
	ConditionEstablished = "Established"
	// ConditionReserved is on IPReservations. True: the reservation holds all the
	// addresses that it asks for. False: the message says what is missing and why.
	ConditionReserved = "Allocated"
	// ConditionAllocated is on Services of type LoadBalancer. True: the Service
	// has the addresses it asks for, and nothing but missing endpoints or a pool
	// that no advertisement covers keeps nodes from announcing them. False: the
	// message says why not. A Service that Fairlead has never served has none.
	ConditionAllocated = GroupName + "/Allocated"
	// ConditionGuest is on Services that share addresses which Services of another
	// namespace had first. It is True, and its message ends with GuestOf and
	// these addresses, separated by ", ", from which the speakers read them.
	ConditionGuest = GroupName + "/Guest"
)

// GuestOf comes before the addresses in the message of ConditionGuest.
const GuestOf = "another namespace had these first, and nodes announce them for it: "

// Reasons of conditions and Events that report success. The reasons of
// failures are declared by the code that finds them.
const (
	// ReasonReady goes with ConditionReady when it is True.
	ReasonReady = "Ready"
	// ReasonHasCapacity goes with ConditionHasCapacity when it is True.
	ReasonHasCapacity = "HasCapacity"
	// ReasonAdvertised goes with ConditionAdvertised when it is True.
	ReasonAdvertised = "Advertised"
	// ReasonEstablished goes with ConditionEstablished when it is True.
	ReasonEstablished = "Established"
	// ReasonAllocated goes with ConditionAllocated and ConditionReserved when
	// they are True, and with the Event that says which addresses a Service or
	// an IPReservation got.
	ReasonAllocated = "Allocated"
	// ReasonGuest goes with ConditionGuest.
	ReasonGuest = "AddressOfAnotherNamespace"
	// ReasonReleased goes with the Event that says which addresses a Service or an
	// IPReservation gave back while it continues to exist.
	ReasonReleased = "Released"
)

// Labels of BGPSessions and L2Addresses.
const (
	// LabelNode has the name of the node, as [LabelValue] makes it.
	LabelNode = GroupName + "/node"
	// LabelPeer is on BGPSessions, and has the name of the BGPPeer, as
	// [LabelValue] makes it.
	LabelPeer = GroupName + "/peer"
	// LabelDoubtedBy is on an L2Address with the condition Doubted, and has the
	// name of the node that found it, as [LabelValue] makes it.
	LabelDoubtedBy = GroupName + "/doubted-by"
)

// The Secret with the key that authenticates the nodes' hellos, in the
// namespace in which Fairlead runs. The controller creates it, the speakers
// read it.
const (
	// HelloSecret is the name of the Secret.
	HelloSecret = "fairlead-hello"
	// HelloSecretKey is the key of its data.
	HelloSecretKey = "key"
)

// Reasons of Events on that Secret, and on the Nodes that have not read a key.
const (
	// ReasonHelloKeyMissing: the Secret exists, and there is no key in it.
	ReasonHelloKeyMissing = "HelloKeyMissing"
	// ReasonHelloKeyMade: the controller has put a key into it.
	ReasonHelloKeyMade = "HelloKeyMade"
)
