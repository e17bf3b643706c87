package allocation

import (
	"net/netip"

	"go4.org/netipx"

	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

// Plan decides from scratch what an Engine decides from snapshot to snapshot.
func Plan(c *view.Cluster, assumed Assignments, classes view.Classes) (Assignments, []problem.Problem) {
	result := Assignments{
		Services:     make(map[view.Ref]Assignment, len(c.Services)),
		Reservations: make(map[view.Ref]Assignment, len(c.Reservations)),
	}
	return result, allActive(c).plan(assumed, classes, result)
}

// Count returns the usage of the pools with these assignments in place.
func Count(c *view.Cluster, assigned Assignments) map[string]Usage {
	return allActive(c).count(assigned)
}

// Users returns the Services on addresses of reservations with these assignments in place.
func Users(c *view.Cluster, assigned Assignments) map[netip.Addr][]view.Ref {
	return allActive(c).users(assigned)
}

// Extent returns the ranges of the pools with these assignments in place.
func Extent(c *view.Cluster, assigned Assignments) map[string][]netipx.IPRange {
	return allActive(c).extent(assigned)
}

// allActive has no settled Service.
func allActive(c *view.Cluster) *scene {
	return &scene{c, c.Services, &settled{}, newFreeList(c)}
}
