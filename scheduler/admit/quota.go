package admit

// Quota is how many runs a claim may take from one queue. Either all quotas of a claim name a tenant or none does;
// see share.
type Quota struct {
	Queue  int16
	Tenant int32 // whose runs; 0: of any tenant
	Slots  int
}

// BatchSize is the most slots one claim takes: enough to amortise its round trips, few enough to hold its locks for
// milliseconds only.
const BatchSize = 100

// Total is how many slots quotas have together.
func Total(quotas []Quota) (slots int) {
	for _, q := range quotas {
		slots += q.Slots
	}
	return slots
}
