package agent_test

import (
	"fmt"
	"maps"

	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
)

// follow takes over the sessions as one does that looks at what changed alone, and holds that it is nothing else.
func (w bgp) follow(want map[string]desired.Session) {
	now := make(map[string]desired.Session, len(want))
	for name, session := range want {
		have := w.sessions[name]
		changed, known := session.ChangedSince(have.Revision)
		for prefix, attrs := range session.Routes {
			had, ok := have.Routes[prefix]
			if _, told := changed[prefix]; known && !told && (!ok || !had.Equal(attrs)) {
				w.wrong = append(w.wrong, fmt.Sprintf("it is not told that the route of %s to %s is another", name, prefix))
			}
		}
		for prefix := range have.Routes {
			_, stays := session.Routes[prefix]
			if _, told := changed[prefix]; known && !told && !stays {
				w.wrong = append(w.wrong, fmt.Sprintf("it is not told that the route of %s to %s is gone", name, prefix))
			}
		}
		session.Routes, session.Aggregates = maps.Clone(session.Routes), maps.Clone(session.Aggregates)
		now[name] = session
	}
	w.sessions = now
}

// changes says what is another from one snapshot to the next, as who watches a cluster does: some
// Services, or anything.
func changes(before, c *view.Cluster, services bool) view.Changes {
	if before == nil {
		return view.Changes{Revision: 1, Others: true}
	}
	said := view.Changes{Revision: before.Revision + 1, Since: before.Revision, Touched: map[view.Ref]struct{}{}, Others: !services}
	for _, some := range []*view.Cluster{before, c} {
		for ref := range some.Services {
			if before.Services[ref] == nil || c.Services[ref] == nil {
				said.Touched[ref] = struct{}{}
			}
		}
	}
	return said
}
