// Package v1beta1 is the API of Fairlead, group fairlead.dev: the pools that
// addresses come from, the reservations of them, the routers to talk to, and the
// advertisements that join pools and routers. It also holds every name that users meet
// outside these kinds: annotations, condition types and the reasons that go with them.
//
// All kinds but IPReservation are cluster-scoped, so that there is no wrong namespace
// to put them in; an IPReservation belongs to who owns the namespace. What a single object
// can get wrong is refused by the API server through rules in the schema; what only shows
// beside other objects (two pools that overlap, a Secret that is missing) becomes a
// condition of type Ready.
//
// +kubebuilder:object:generate=true
// +groupName=fairlead.dev
package v1beta1
