// Package fault marks the moments at which a test of crashes stops a process.
//
// A Point lies after a step that a crash may follow: what a journal holds by
// then, and what exists. Without the build tag "faults" a point is nothing at
// all. With it, and BULKHEAD_FAULTS in the environment, each point is told to
// the unix socket of that name, and the process waits there for an answer, or
// for whatever the test does to it.
package fault

// Env is the variable that names the test's socket.
const Env = "BULKHEAD_FAULTS"

// Hit is what a point tells, as one line of JSON. Any byte that comes back
// lets the process go on.
type Hit struct {
	Point string   `json:"point"`
	PID   int      `json:"pid"`
	Args  []string `json:"args"` // of the process
}
