package scheduler

import (
	"maps"
	"sync"
)

// Punctual is how many runs had their first request sent on time since the replica started, and how many had not.
type Punctual struct{ OnTime, Late int64 }

// mostTenants is how many tenants punctuality counts by themselves.
const mostTenants = 100

// punctuality counts by tenant: the first hundred that have a run here, and all others as tenant 0. So a count never
// falls.
type punctuality struct {
	mu      sync.Mutex
	tenants map[int32]Punctual
}

func (p *punctuality) count(tenant int32, onTime bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, known := p.tenants[tenant]
	if !known && len(p.tenants) >= mostTenants {
		tenant, n = 0, p.tenants[0]
	}
	if onTime {
		n.OnTime++
	} else {
		n.Late++
	}
	p.tenants[tenant] = n
}

// Punctuality returns how punctual the runs of tenants were on this replica: of each of the first hundred, and of all
// others as tenant 0.
func (m *Metrics) Punctuality() map[int32]Punctual {
	m.punctual.mu.Lock()
	defer m.punctual.mu.Unlock()
	return maps.Clone(m.punctual.tenants)
}
