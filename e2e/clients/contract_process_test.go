package clients

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/sys/capability"
	"github.com/opencontainers/runtime-spec/specs-go"
)

var processCases = []contractCase{
	{"environment", environment},
	{"arguments", arguments},
	{"users", users},
	{"working directory", workingDirectory},
	{"capabilities", caps},
	{"limits", limits},
	{"no new privileges", noNewPrivileges},
	{"out of memory score", oomScore},
	{"host name", hostName},
	{"sysctls", sysctls},
	{"seccomp", seccomp},
	{"devices", devices},
	{"programs that are missing", missingPrograms},
}

// environment: the environment is the specification's, to the byte and in order.
func environment(ctx context.Context, t *testing.T, c *contract) {
	spec := newSpec("cat", "/proc/self/environ")
	spec.Process.Env = []string{
		"PATH=/bin", "HOME=/root", "Z=1", "A=2", "EMPTY=", "SPACES= a  b ", "EQUALS=a=b=", "LINES=a\nb\n", "UTF=ä€", "lower.case-x=1",
		"LONG=" + strings.Repeat("x", 100_000),
	}
	if diff := cmp.Diff(strings.Join(spec.Process.Env, "\x00")+"\x00", c.output(ctx, t, spec)); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
}

// arguments: arguments are the specification's, to the byte.
func arguments(ctx context.Context, t *testing.T, c *contract) {
	args := []string{"cat", "/proc/self/cmdline", "--", "", " a  b ", "$HOME", "'\"\\", "a\nb", "ä€"}
	spec := newSpec(args...)
	k := c.start(ctx, t, "c", spec)
	k.expectExit(ctx, t, 1) // cat reads the file, and then others that do not exist
	if got, want := k.stdout.all(ctx, t), strings.Join(args, "\x00")+"\x00"; got != want {
		t.Errorf("arguments %q, want %q", got, want)
	}
}

// users: ids, groups and umask are the specification's.
func users(ctx context.Context, t *testing.T, c *contract) {
	mask := uint32(0o027)
	spec := script("id -u; id -g; id -G; umask; grep Groups /proc/self/status; touch /tmp/made; stat -c '%u %g %a' /tmp/made")
	spec.Process.User = specs.User{UID: 1000, GID: 2000, AdditionalGids: []uint32{5, 6}, Umask: &mask}
	spec.Process.Env = []string{"PATH=/bin"}
	want := "1000\n2000\n2000 5 6\n0027\nGroups:\t5 6 \n1000 2000 640\n"
	if got := c.output(ctx, t, spec); got != want {
		t.Errorf("ids, umask and a new file: %q, want %q", got, want)
	}
}

// workingDirectory: the working directory is created if it does not exist.
func workingDirectory(ctx context.Context, t *testing.T, c *contract) {
	spec := newSpec("pwd")
	spec.Process.Cwd = "/made/by/runtime"
	if got := c.output(ctx, t, spec); got != "/made/by/runtime\n" {
		t.Errorf("working directory %q", got)
	}
}

// mask returns the line CapBnd of /proc/PID/status for a list of capabilities.
func mask(t *testing.T, names []string) string {
	t.Helper()
	var bits uint64
	for _, k := range capability.ListKnown() {
		if slices.Contains(names, "CAP_"+strings.ToUpper(k.String())) {
			bits |= 1 << k
		}
	}
	return fmt.Sprintf("CapBnd:\t%016x\n", bits)
}

// caps: a program gets the capabilities of the specification in each set.
func caps(ctx context.Context, t *testing.T, c *contract) {
	spec := script("grep ^Cap /proc/self/status; chown 1:1 /etc/text; hostname x")
	spec.Process.Capabilities = &specs.LinuxCapabilities{
		Bounding:  []string{"CAP_CHOWN", "CAP_KILL", "CAP_SYS_TIME"},
		Effective: []string{"CAP_CHOWN"}, Permitted: []string{"CAP_CHOWN", "CAP_KILL"},
		Inheritable: []string{"CAP_KILL"}, Ambient: []string{"CAP_KILL"},
	}
	spec.Process.User.UID = 1000 // root gets its bounding set
	k := c.start(ctx, t, "c", spec)
	k.expectExit(ctx, t, 1)
	const kill = "0000000000000020\n"
	want := "CapInh:\t" + kill + "CapPrm:\t" + kill + "CapEff:\t" + kill + "CapBnd:\t0000000002000021\n" + "CapAmb:\t" + kill
	if got := k.stdout.all(ctx, t); got != want {
		t.Errorf("capabilities %q, want %q", got, want)
	}
	other := newContract(t, c.oci)
	spec = script("grep CapBnd /proc/self/status")
	if got, want := other.output(ctx, t, spec), mask(t, capabilities); got != want {
		t.Errorf("docker's capabilities: %q, want %q", got, want)
	}
}

// limits: resource limits are the specification's.
func limits(ctx context.Context, t *testing.T, c *contract) {
	spec := script("ulimit -Sn; ulimit -Hn; ulimit -Sc; ulimit -Hc")
	spec.Process.Rlimits = []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Soft: 100, Hard: 200}, {Type: "RLIMIT_CORE", Soft: 0, Hard: 1 << 20}}
	if got := c.output(ctx, t, spec); got != "100\n200\n0\n2048\n" {
		t.Errorf("limits %q", got)
	}
}

func noNewPrivileges(ctx context.Context, t *testing.T, c *contract) {
	spec := script("grep NoNewPrivs /proc/self/status")
	spec.Process.NoNewPrivileges = true
	if got := c.output(ctx, t, spec); got != "NoNewPrivs:\t1\n" {
		t.Errorf("status: %q", got)
	}
}

func oomScore(ctx context.Context, t *testing.T, c *contract) {
	spec, score := newSpec("cat", "/proc/self/oom_score_adj"), 321
	spec.Process.OOMScoreAdj = &score
	if got := c.output(ctx, t, spec); got != "321\n" {
		t.Errorf("score: %q", got)
	}
}

func hostName(ctx context.Context, t *testing.T, c *contract) {
	spec := newSpec("hostname")
	spec.Hostname = "a-name.example.org"
	if got := c.output(ctx, t, spec); got != "a-name.example.org\n" {
		t.Errorf("host name %q", got)
	}
}

func sysctls(ctx context.Context, t *testing.T, c *contract) {
	spec := script("sysctl -n net.ipv4.ip_unprivileged_port_start net.ipv4.ping_group_range kernel.shmmni; sysctl -w kernel.shmmni=1")
	spec.Linux.Sysctl = map[string]string{
		"net.ipv4.ip_unprivileged_port_start": "0", "net.ipv4.ping_group_range": "0 5", "kernel.shmmni": "99",
	}
	k := c.start(ctx, t, "c", spec)
	k.expectExit(ctx, t, 1)
	if got := k.stdout.all(ctx, t); got != "0\n0\t5\n99\n" {
		t.Errorf("sysctls %q", got)
	}
}

// seccomp: a filter is in force for all programs.
func seccomp(ctx context.Context, t *testing.T, c *contract) {
	spec := script("mkdir /tmp/x; grep Seccomp: /proc/self/status")
	spec.Linux.Seccomp = &specs.LinuxSeccomp{
		DefaultAction: specs.ActAllow, Architectures: []specs.Arch{specs.ArchX86_64},
		Syscalls: []specs.LinuxSyscall{{Names: []string{"mkdir", "mkdirat"}, Action: specs.ActErrno, ErrnoRet: new(uint(95))}},
	}
	k := c.start(ctx, t, "c", spec)
	k.expectExit(ctx, t, 0)
	if out, errs := k.stdout.all(ctx, t), k.stderr.all(ctx, t); out != "Seccomp:\t2\n" || !strings.Contains(errs, "Operation not supported") {
		t.Errorf("with a filter: %q, %q", out, errs)
	}
}

// devices: the usual devices exist and work. Others cannot be used.
func devices(ctx context.Context, t *testing.T, c *contract) {
	spec := script(`for d in null zero full random urandom tty; do test -c /dev/$d && echo $d; done
		echo x >/dev/null; dd if=/dev/zero bs=8 count=1 2>/dev/null | od -An -tx1; echo x >/dev/full || echo full
		readlink /dev/fd; readlink /dev/stdin; readlink /dev/ptmx; mknod /tmp/mem c 1 1 && dd if=/tmp/mem of=/dev/null bs=1 count=1`)
	k := c.start(ctx, t, "c", spec)
	k.expectExit(ctx, t, 1)
	want := "null\nzero\nfull\nrandom\nurandom\ntty\n 00 00 00 00 00 00 00 00\nfull\n/proc/self/fd\n/proc/self/fd/0\npts/ptmx\n"
	if got := k.stdout.all(ctx, t); got != want {
		t.Errorf("devices %q, want %q", got, want)
	}
	if got := k.stderr.all(ctx, t); !strings.Contains(got, "Operation not permitted") {
		t.Errorf("the device of memory: %q", got)
	}
}

// missingPrograms: create or start fails. From the texts, podman derives exit code 126 or 127. No state is left.
func missingPrograms(ctx context.Context, t *testing.T, c *contract) {
	for program, want := range map[string]string{
		"absent":      `exec: "absent": executable file not found in $PATH`,
		"/bin/absent": `exec: "/bin/absent": stat /bin/absent: no such file or directory`,
		"/etc":        `exec: "/etc": permission denied`,
		"/etc/text":   `exec: "/etc/text": permission denied`,
	} {
		bundle := writeBundle(t, newSpec(program))
		k, code, log := c.tryCreate(ctx, t, "c", bundle)
		message, command := lastLogged(t, log), "create"
		if code == 0 {
			r := c.run(ctx, t, "start", "c")
			message, command, code = r.logged, "start", r.code
			c.do(ctx, t, "delete", "--force", "c")
			k.wait(ctx, t)
		}
		if code != 1 || !strings.Contains(message, want) {
			t.Errorf("%s of %s: exit code %d, %q, want %q", command, program, code, message, want)
		}
		c.fails(ctx, t, 1, "container does not exist", "state", "c")
		if held := mountsOf(t, bundle); len(held) > 0 {
			t.Errorf("%s is mounted: %q", bundle, held)
		}
	}
	if left, err := os.ReadDir(filepath.Clean(c.root)); err != nil || len(left) > 0 {
		t.Errorf("left in the directory of states: %v, %v", left, err)
	}
}
