//go:build faults

package fault

import (
	"encoding/json"
	"net"
	"os"
)

// Point is a moment at which a crash is tried: it tells the test and waits for
// its answer. Without a test it does nothing.
func Point(name string) {
	path := os.Getenv(Env)
	if path == "" {
		return
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		return // the test is over
	}
	defer conn.Close()
	if err := json.NewEncoder(conn).Encode(Hit{Point: name, PID: os.Getpid(), Args: os.Args}); err != nil {
		return
	}
	_, _ = conn.Read(make([]byte, 1)) // an answer and an end are the same
}

// Environ is what a child that starts with an environment of its own needs for
// its points.
func Environ() []string {
	if path := os.Getenv(Env); path != "" {
		return []string{Env + "=" + path}
	}
	return nil
}
