package hosts

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/bulkhead-project/bulkhead/internal/test/testturn"
)

// hosts lists the hosts by the names of `make hosts HOST=`: Debian's suite and parameters for the kernel.
var hosts = []struct{ name, suite, parameters string }{
	{name: "debian12", suite: "bookworm"},
	{name: "debian13", suite: "trixie"},
	{name: "debian12-cgroup1", suite: "bookworm", parameters: "systemd.unified_cgroup_hierarchy=0"},
}

// TestToday runs some of the scenarios on one host, other ones each day.
func TestToday(t *testing.T) {
	if testing.Short() {
		t.Skip("boots a host")
	}
	for i, day := range []struct {
		name, suite string
		test        func(h *host, t *testing.T)
	}{
		{"units", "trixie", func(h *host, t *testing.T) {
			if testturn.Day()%8 < 4 { // both together take too long for one day
				t.Run("units", h.testUnits)
			} else {
				t.Run("podman", h.testPodman)
			}
		}},
		{"root", "bookworm", func(h *host, t *testing.T) { h.testUser(t, "root") }},
		{"alice", "trixie", func(h *host, t *testing.T) { h.testUser(t, "alice") }},
		{"bob", "bookworm", func(h *host, t *testing.T) { h.testUser(t, "bob") }},
	} {
		t.Run(day.name, testturn.In(i, 4, func(t *testing.T) { day.test(boot(t, day.suite, ""), t) }))
	}
}

// TestHosts runs every scenario as every user on every host, and then those of all users together.
func TestHosts(t *testing.T) {
	if os.Getenv("BULKHEAD_TEST_HOSTS") == "" {
		t.Skip("takes an hour: make hosts runs it")
	}
	for _, one := range hosts {
		t.Run(one.name, func(t *testing.T) {
			h := boot(t, one.suite, one.parameters)
			for _, user := range []string{"root", "alice", "bob", "carol"} {
				t.Run(user, func(t *testing.T) { h.testUser(t, user) })
			}
			t.Run("all", func(t *testing.T) {
				t.Run("units", h.testUnits)
				t.Run("clients", h.testClients)
				t.Run("KVM", h.testKVM)
				t.Run("home", h.testHome)
				t.Run("IPv6", h.testIPv6)
				t.Run("no user namespaces", h.testNoUserNamespaces)
				t.Run("package", h.testPackage)
				t.Run("reboot", h.testReboot)
			})
		})
	}
}

// testUser runs the scenarios of one user.
func (h *host) testUser(t *testing.T, user string) {
	s := &session{host: h, user: user}
	t.Run("check", s.testCheck)
	if user == "carol" { // without KVM a VM inside an emulated host takes minutes
		return
	}
	s.start(t)
	for _, one := range []struct {
		name string
		test func(t *testing.T)
	}{
		{"run", s.testRun},
		{"exec", s.testExec},
		{"cp", s.testCopy},
		{"logs", s.testLogs},
		{"network", s.testNetwork},
		{"limits", s.testLimits},
		{"engine killed", s.testEngineKilled},
		{"VM killed", s.testVMKilled},
		{"volumes", s.testVolumes},
		{"scope", s.testScope},
		{"no session", s.testNoSession},
		{"clock", s.testClock},
		{"logout", s.testLogout},
	} {
		t.Run(one.name, one.test)
	}
	t.Run("end", s.testEnd)
}

// session is a user of a host.
type session struct {
	*host
	user string
}

// do runs a script as the user, as host.do does.
func (s *session) do(t *testing.T, script string) string {
	t.Helper()
	return s.host.do(t, s.user, script)
}

// says fails the test unless the script prints exactly want.
func (s *session) says(t *testing.T, want, script string) {
	t.Helper()
	if got := s.do(t, script); got != want {
		t.Errorf("%s prints %q, not %q", script, got, want)
	}
}

// testCheck: no line of `bulkhead check` fails, and KVM works for users with access to /dev/kvm.
func (s *session) testCheck(t *testing.T) {
	out, err := s.try(deadline(t), s.user, "bulkhead check")
	t.Logf("%v: %s", err, out)
	lines := map[string]string{}
	for line := range strings.Lines(out) {
		for _, status := range []string{" ok ", " warn ", " fail "} {
			if name, what, found := strings.Cut(line, status); found && !strings.HasPrefix(line, " ") {
				lines[strings.TrimSpace(name)] = strings.TrimSpace(status) + " " + strings.TrimSpace(what)
				break
			}
		}
	}
	for name, line := range lines {
		if strings.HasPrefix(line, "fail") {
			t.Errorf("%s: %s", name, line)
		}
	}
	want := "ok"
	if s.user == "carol" {
		want = "warn"
		if !strings.Contains(out, "add the user to the group kvm") {
			t.Errorf("check names no remedy for /dev/kvm")
		}
	}
	if !strings.HasPrefix(lines["accelerator"], want) {
		t.Errorf("accelerator: %q", lines["accelerator"])
	}
	for _, name := range []string{"network", "programs", "QEMU", "guest"} {
		if s.user != "carol" && !strings.HasPrefix(lines[name], "ok") {
			t.Errorf("%s: %q", name, lines[name])
		}
	}
	lingers := s.user == "root" || s.user == "alice"
	line := lines["cgroups"]
	switch {
	case s.cgroup1 && s.user == "root":
		if !strings.HasPrefix(line, "ok cgroup1: memory, cpu, pids of") {
			t.Errorf("cgroups: %q", line)
		}
	case s.cgroup1: // systemd delegates no cgroups of version 1 to users
		if !strings.HasPrefix(line, "warn no cgroups for pods") {
			t.Errorf("cgroups: %q", line)
		}
	case !strings.Contains(line, "cgroup2: cpu, memory, pids of"), strings.HasPrefix(line, "ok") != lingers,
		strings.Contains(out, "loginctl enable-linger "+s.user) == lingers:
		t.Errorf("cgroups: %q", line)
	}
}

// start starts the pod web. All scenarios use it.
func (s *session) start(t *testing.T) {
	s.do(t, loads)
	s.do(t, fmt.Sprintf("bulkhead run -d --name web -p %d:80 --memory 256m --cpus 0.5 localhost/busybox:demo "+
		"sh -c 'mkdir /www; echo served >/www/index.html; echo begun; exec httpd -f -p 80 -h /www'", s.port()))
}

// testRun: run exits with the exit code of the container, and a detached pod keeps running.
func (s *session) testRun(t *testing.T) {
	s.says(t, "Linux\n7", "bulkhead run --rm localhost/busybox:demo sh -c 'uname -s; exit 7' || echo $?")
	s.says(t, "web Running", "bulkhead ps --format '{{.Name}} {{.Status}}'")
}

// port returns the user's own port on the host.
func (s *session) port() int { return 8080 + len(s.user) }

func (s *session) testExec(t *testing.T) {
	s.says(t, "in\n3", "echo in | bulkhead exec -i web -- sh -c 'cat; exit 3' || echo $?")
}

func (s *session) testCopy(t *testing.T) {
	s.says(t, "copied", "d=$(mktemp -d); echo copied >$d/a; bulkhead cp $d/a web:/tmp/a; bulkhead cp web:/tmp/a $d/b; cat $d/b; rm -r $d")
}

func (s *session) testLogs(t *testing.T) { s.says(t, "begun", "bulkhead logs web") }

// testNetwork: the host reaches a published port. The pod resolves names by the host's resolver. The pod does not reach
// the host's own sshd.
func (s *session) testNetwork(t *testing.T) {
	s.says(t, "served", fmt.Sprintf("busybox wget -q -O - http://127.0.0.1:%d/", s.port()))
	if out := s.do(t, "bulkhead exec web -- nslookup $(hostname)"); !strings.Contains(out, "Address") {
		t.Errorf("the pod resolves no name: %s", out)
	}
	s.says(t, "closed", `for a in $(hostname -I); do
		bulkhead exec web -- nc -w 3 $a 22 </dev/null >/dev/null 2>&1 && echo open
	done; echo closed`)
}
