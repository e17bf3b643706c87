// Package v1beta1 is the API of Fairlead, group fairlead.dev. Users write
// pools of addresses, reservations of addresses, the routers to talk to, and
// advertisements that say which addresses are announced, where and how.
// Fairlead writes L2Addresses, BGPSessions and NodeForwardings, which show
// what it does. The package also has every name that users meet outside
// these kinds: annotations, condition types and their reasons.
//
// All kinds but IPReservation are cluster-scoped, so that there is no wrong
// namespace to put them in; an IPReservation belongs to the owners of its
// namespace. Mistakes within a single object are refused by the API server,
// through rules in the schema. Mistakes that only show beside other objects
// (two pools that overlap, a Secret that is missing) become a condition of
// type Ready.
//
// Structs of plain values and the named lists have no DeepCopy: the objects that
// they are part of copy them.
//
// +kubebuilder:object:generate=true
// +groupName=fairlead.dev
package v1beta1
