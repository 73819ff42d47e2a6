// Package fault marks the points where a test of crashes can stop a process.
//
// A Point lies after a step that a crash may follow: after a record or a side effect. Without the build tag "faults" a
// point does nothing. With the tag, and BULKHEAD_FAULTS in the environment, each point is reported to the unix socket
// of that name. The process then waits for an answer, or until the test kills it.
package fault

// Env is the variable that names the test's socket.
const Env = "BULKHEAD_FAULTS"

// Hit is the report of a point, as one line of JSON. Any byte in answer lets the process go on.
type Hit struct {
	Point string   `json:"point"`
	PID   int      `json:"pid"`
	Args  []string `json:"args"` // of the process
}
