package clients

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

var userCases = []contractCase{
	{"users of a user namespace", mappedUsers},
}

// firstUser is the host's user for root in a user namespace.
const firstUser = 100000

// mapped puts a container into a user namespace. runc cannot mount a sysfs there if the host's has other mounts on it.
func mapped(spec *specs.Spec, first uint32) *specs.Spec {
	spec.Linux.Namespaces = append(spec.Linux.Namespaces, specs.LinuxNamespace{Type: specs.UserNamespace})
	spec.Linux.UIDMappings = []specs.LinuxIDMapping{{HostID: first, Size: 65536}}
	spec.Linux.GIDMappings = spec.Linux.UIDMappings
	spec.Mounts = slices.DeleteFunc(spec.Mounts, func(m specs.Mount) bool { return strings.HasPrefix(m.Destination, "/sys") })
	return spec
}

// mappedBundle is like writeBundle. The files belong to users of the namespace, who can reach the bundle.
func mappedBundle(t *testing.T, spec *specs.Spec) string {
	t.Helper()
	bundle := writeBundle(t, spec)
	reachable(t, bundle)
	err := filepath.WalkDir(filepath.Join(bundle, "rootfs"), func(path string, _ fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil {
			err = unix.Lstat(path, &st)
		}
		if err == nil {
			err = os.Lchown(path, int(st.Uid)+firstUser, int(st.Gid)+firstUser)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return bundle
}

// reachable lets all users pass to a temporary directory.
func reachable(t *testing.T, dir string) {
	t.Helper()
	for ; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // as it says
			t.Fatal(err)
		}
	}
}

// mappedUsers: podman's --uidmap and docker's userns-remap. The kernel translates owners: root of the container is an
// ordinary user of the host. Containers that share a namespace and the mappings share a VM.
func mappedUsers(ctx context.Context, t *testing.T, c *contract) {
	dir := t.TempDir()
	reachable(t, dir)
	if err := os.WriteFile(dir+"/foreign", []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, firstUser, firstUser); err != nil {
		t.Fatal(err)
	}
	volume := specs.Mount{Destination: "/v", Type: "bind", Source: dir, Options: []string{"rbind", "rprivate"}}
	spec := mapped(script(`id -u; stat -c '%u %g' / /home/demo /v /v/foreign; cat /v/foreign || echo refused
		touch /v/root; touch /v/web; chown 33:34 /v/web; chown 70000 /v/root || echo unmapped; echo ready; sleep 1000`), firstUser)
	spec.Mounts = append(spec.Mounts, volume)
	k := c.create(ctx, t, "c", mappedBundle(t, spec))
	c.do(ctx, t, "start", "c")
	k.stdout.await(ctx, t, "ready\n")
	want := "0\n0 0\n1000 1000\n0 0\n65534 65534\nrefused\nunmapped\nready\n"
	if got := k.stdout.text(); got != want {
		t.Errorf("output %q, want %q", got, want)
	}
	c.do(ctx, t, "exec", "--user", "1000:2000", "c", "touch", "/home/demo/f")
	c.exec(ctx, t, "c", "touch /v/exec")
	member := mapped(script("chown 5 /v/exec && touch /v/member"), firstUser)
	member.Mounts = append(member.Mounts, volume)
	in(in(member, specs.NetworkNamespace, k.of("net")), specs.UserNamespace, k.of("user"))
	m := c.create(ctx, t, "member", mappedBundle(t, member))
	c.do(ctx, t, "start", "member")
	m.expectExit(ctx, t, 0)
	for name, ids := range map[string][2]uint32{
		dir + "/root": {0, 0}, dir + "/web": {33, 34}, dir + "/exec": {5, 0}, dir + "/member": {0, 0},
		k.bundle + "/rootfs/home/demo/f": {1000, 2000},
	} {
		var st unix.Stat_t
		if err := unix.Stat(name, &st); err != nil || st.Uid != firstUser+ids[0] || st.Gid != firstUser+ids[1] {
			t.Errorf("%s on the host: %d:%d, %v; want %v above %d", name, st.Uid, st.Gid, err, ids, firstUser)
		}
	}
	users, err := os.ReadFile(fmt.Sprintf("/proc/%d/uid_map", k.pid))
	var inside, outside, count int
	if _, scanErr := fmt.Sscan(string(users), &inside, &outside, &count); err != nil || scanErr != nil || outside != firstUser {
		t.Errorf("the mappings of the container's pid: %q, %v", users, err)
	}
	if !c.vm {
		return
	}
	for text, spec := range map[string]*specs.Spec{
		"linux.uidMappings: all containers of a VM must have the same mappings": mapped(script("true"), 2*firstUser),
		"all containers of a VM must have the same mappings":                    script("true"),
	} {
		in(spec, specs.NetworkNamespace, k.of("net"))
		c.fails(ctx, t, 1, text, "create", "--bundle", mappedBundle(t, spec), "other")
	}
}
