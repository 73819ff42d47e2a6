//go:build faults

package fault

import (
	"encoding/json"
	"net"
	"os"
	"sync"
)

// atOnce is the most points of one process that can wait at the same time.
const atOnce = 8

// connections are opened at the first point: a process may give up the right to create sockets later.
var connections = sync.OnceValue(func() chan net.Conn {
	made := make(chan net.Conn, atOnce)
	for range atOnce {
		conn, err := net.Dial("unix", os.Getenv(Env))
		if err != nil {
			break // the test is over
		}
		made <- conn
	}
	return made
})

// Point is a point where a test can stop the process: it reports to the test and waits for its answer. Without a test
// it does nothing.
func Point(name string) {
	if os.Getenv(Env) == "" {
		return
	}
	for {
		var conn net.Conn
		select {
		case conn = <-connections():
		default:
			return // the test is over
		}
		err := json.NewEncoder(conn).Encode(Hit{Point: name, PID: os.Getpid(), Args: os.Args})
		if err == nil {
			_, err = conn.Read(make([]byte, 1))
		}
		if err == nil {
			connections() <- conn
			return
		}
		conn.Close()
	}
}

// Environ returns the variables that a child with an environment of its own needs for its points.
func Environ() []string {
	if path := os.Getenv(Env); path != "" {
		return []string{Env + "=" + path}
	}
	return nil
}
