package bridge

import (
	"fairlead.dev/fairlead/internal/apiservers"
	"fairlead.dev/fairlead/speaker/agent"
	"fairlead.dev/fairlead/speaker/desired"
)

// Learning is a reporter that takes from each pass which API servers there are.
type Learning struct {
	agent.Reporter
	Servers *apiservers.Servers
}

// Report implements agent.Reporter.
func (l Learning) Report(o agent.Outcome) {
	l.Servers.Learn(desired.APIServers(o.Cluster))
	l.Reporter.Report(o)
}
