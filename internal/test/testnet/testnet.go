// Package testnet gives tests a world of their own: a network namespace for "this host", joined by a veth pair to one
// for "the outside". It needs root.
package testnet

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/bulkhead-project/bulkhead/internal/test/testproc"
)

// World is a pair of namespaces. It ends with its test.
type World struct {
	host, outside int // processes in their namespaces
}

// New creates a world in which this host and the outside have these addresses of one /24. serve is started in the
// outside's namespace, and killed at the end.
func New(t testing.TB, host, outside string, serve *exec.Cmd) World {
	t.Helper()
	w := World{host: start(t, exec.Command("sleep", "infinity"))}
	server := start(t, serve)
	w.outside = server
	for _, step := range []struct {
		pid  int
		args string
	}{
		{w.host, "link add tohost0 type veth peer name tonet0 netns " + strconv.Itoa(server)},
		{w.host, "addr add " + host + "/24 dev tohost0"},
		{w.host, "link set tohost0 up"},
		{w.host, "link set lo up"},
		{server, "addr add " + outside + "/24 dev tonet0"},
		{server, "link set tonet0 up"},
		{w.host, "route add default via " + outside},
	} {
		Run(t, append(nsenter(step.pid), append([]string{"ip"}, strings.Fields(step.args)...)...)...)
	}
	return w
}

// Enter returns the start of a command line for a command in the host's namespace.
func (w World) Enter() []string { return nsenter(w.host) }

// EnterOutside returns the start of a command line for a command in the outside's namespace.
func (w World) EnterOutside() []string { return nsenter(w.outside) }

// Outside runs ip in the outside's namespace.
func (w World) Outside(t testing.TB, args ...string) {
	t.Helper()
	Run(t, append(append(nsenter(w.outside), "ip"), args...)...)
}

func nsenter(pid int) []string {
	return []string{"nsenter", "--net=/proc/" + strconv.Itoa(pid) + "/ns/net"}
}

// start starts a process in a network namespace of its own.
func start(t testing.TB, cmd *exec.Cmd) int {
	t.Helper()
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	return testproc.Start(t, cmd).PID
}

// Run runs a command, and fails the test if it fails.
func Run(t testing.TB, args ...string) {
	t.Helper()
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
	}
}
