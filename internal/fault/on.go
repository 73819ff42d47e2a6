//go:build faults

package fault

import (
	"encoding/json"
	"net"
	"os"
	"sync"
)

// atOnce is how many points of one process can wait at the same time.
const atOnce = 8

// connections are made at the first point: a process may give up the right to make
// sockets.
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

// Point is a moment at which a crash is tried: it tells the test and waits for
// its answer. Without a test it does nothing.
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

// Environ is what a child that starts with an environment of its own needs for
// its points.
func Environ() []string {
	if path := os.Getenv(Env); path != "" {
		return []string{Env + "=" + path}
	}
	return nil
}
