package server

import (
	"log/slog"
	"math"
	"syscall"
)

// fewDescriptors is what a replica has open beside its requests, its API's connections and those to the database.
const fewDescriptors = 32

// mostDescriptors is how many file descriptors the system lets this process have. Go has raised the soft limit to the
// hard one when the process started.
func mostDescriptors() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxInt64
	}
	return limit.Cur
}

// apiConnections is how many connections to the API may be open. They leave most descriptors to callbacks.
func apiConnections(descriptors uint64) int32 { return int32(min(mostConnections, descriptors/4)) }

// mostRequests is how many requests may be in flight at once, so that file descriptors are left for everything else.
// It warns if that is fewer than there are worker slots.
func mostRequests(log *slog.Logger, descriptors uint64, queues map[string]int, databaseConns int) int {
	slots := 0
	for _, n := range queues {
		slots += n
	}
	api := int(apiConnections(descriptors))
	most := max(1, int(min(descriptors, math.MaxInt32))-api-databaseConns-fewDescriptors)
	if most < slots {
		log.Warn("too few file descriptors for the concurrency of all queues: fewer requests are sent at a time; raise "+
			"the limit (ulimit -n, RLIMIT_NOFILE) or lower --queues",
			"limit", descriptors, "worker_slots", slots, "requests", most, "api_connections", api,
			"database_connections", databaseConns)
	}
	return most
}
