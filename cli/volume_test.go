package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestVolumes creates, lists, enlarges and removes volumes, as root and as an ordinary user.
func TestVolumes(t *testing.T) {
	t.Parallel()
	for name, prefix := range map[string][]string{"root": nil, "ordinary": ordinary} {
		t.Run(name, func(t *testing.T) { testVolumes(t, newUser(t, prefix)) })
	}
}

func testVolumes(t *testing.T, u *user) {
	if out := u.must("", "volume", "ls"); out != "NAME  KIND  SIZE  USED  PODS  AGE\n" {
		t.Errorf("ls of nothing: %q", out)
	}
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"create", "data", "--size", "100m", "--label", "team=db", "--label", "x"}, "data\n"},
		{[]string{"create", "Media_1.x", "--shared"}, "Media_1.x\n"},
		{[]string{"create", "bare", "--block", "--size", "64m"}, "bare\n"},
		{[]string{"inspect", "bare", "-o", "jsonpath={.items[0].size} {.items[0].kind}"}, `67108864 block`},
		{[]string{"ls", "-o", "name"}, "Media_1.x\nbare\ndata\n"},
		{[]string{"rm", "bare"}, "bare\n"},
		{[]string{"inspect", "data", "-o", "jsonpath={.items[0].size} {.items[0].kind}"}, `104857600 disk`},
		{[]string{"inspect", "data", "-o", "jsonpath={.items[0].labels}"}, `{"team":"db","x":""}`},
		{[]string{"inspect", "Media_1.x", "-o", "jsonpath={.items[0].path}"}, u.dir + "/data/volumes/Media_1.x/files"},
		{[]string{"resize", "data", "200Mi"}, "data 210 MB\n"},
		{[]string{"inspect", "data", "-o", "jsonpath={.items[0].size}"}, "209715200"},
	} {
		if out := u.must("", append([]string{"volume"}, tc.args...)...); out != tc.want {
			t.Errorf("volume %v: %q, want %q", tc.args, out, tc.want)
		}
	}
	wide := regexp.MustCompile(`data +disk +210 MB +\S+ kB +- +\d+s +- +team=db,x=`)
	if out := u.must("", "volume", "ls", "-o", "wide"); !wide.MatchString(out) {
		t.Errorf("ls: %s", out)
	}
	if out := u.must("", "system", "df"); !regexp.MustCompile(`Volumes +2 +0 `).MatchString(out) {
		t.Errorf("system df: %s", out)
	}
	for _, b := range []struct {
		args []string
		want []string
	}{
		{[]string{"create"}, []string{"NAME is missing"}},
		{[]string{"create", "data"}, []string{"volume data", "the volume exists already"}},
		{[]string{"create", "../x"}, []string{`"../x"`, "not a name for a volume"}},
		{[]string{"create", "-x"}, []string{"-x"}},
		{[]string{"create", "x", "--size", "lots"}, []string{"--size", "512m"}},
		{[]string{"create", "x", "--size", "0"}, []string{"size", "10Gi"}},
		{[]string{"create", "x", "--size", "9Pi"}, []string{"invalid size"}},
		{[]string{"create", "x", "--block", "--shared"}, []string{"block", "shared"}},
		{[]string{"create", "x", "--label", "=y"}, []string{"KEY=VALUE"}},
		{[]string{"inspect", "none"}, []string{"volume none", "volume ls"}},
		{[]string{"rm", "none"}, []string{"volume none", "volume ls"}},
		{[]string{"resize", "none", "1g"}, []string{"volume none", "volume ls"}},
		{[]string{"resize", "data", "1m"}, []string{"volumes do not shrink"}},
		{[]string{"prune"}, []string{"--force"}},
	} {
		u.refused(t, append([]string{"volume"}, b.args...), b.want...)
	}
	// The remains of a crash are not a volume, and the next reap removes them.
	for _, left := range []string{".making/files", ".gone-1/data"} {
		u.shell(t, `mkdir -p "$1"`, filepath.Join(u.dir, "data/volumes", left))
	}
	u.must("", "reap")
	if left, err := filepath.Glob(u.dir + "/data/volumes/.[mg]*"); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	// A damaged volume can be removed.
	u.shell(t, `echo '{' >"$1"`, filepath.Join(u.dir, "data/volumes/Media_1.x/volume.json"))
	if out := u.must("", "volume", "ls"); !regexp.MustCompile(`Media_1.x +damaged `).MatchString(out) {
		t.Errorf("ls of a damaged one: %s", out)
	}
	if out := u.must("", "volume", "rm", "Media_1.x"); out != "Media_1.x\n" {
		t.Errorf("rm: %q", out)
	}
	u.must("", "volume", "rm", "-f", "none")
	if out := u.must("", "system", "prune", "--force"); strings.Contains(out, "volume") {
		t.Errorf("system prune: %q", out)
	}
	if out := u.must("", "system", "prune", "--volumes", "--force"); !strings.HasPrefix(out, "volume data\nfreed ") {
		t.Errorf("system prune --volumes: %q", out)
	}
	if _, err := os.Lstat(u.dir + "/data/volumes/data"); !os.IsNotExist(err) {
		t.Errorf("after its removal: %v", err)
	}
	u.stays(t)
	c := "apiVersion: v1\nkind: Pod\nmetadata: {name: thief}\nspec:\n  containers: [{name: c, image: x}]\n" +
		"  volumes: [{name: v, persistentVolumeClaim: {claimName: prod_media}}]\n"
	u.must("", "volume", "create", "prod_media", "--shared")
	if _, said, code := u.run(c, "run", "-"); code == 0 || !strings.Contains(said, `a claim's name must not have an underscore`) {
		t.Errorf("another namespace's volume: %d, %q", code, said)
	}
}

// stays has a volume that cannot be removed, and another one. A prune removes what it can, and reports why the rest
// stays.
func (u *user) stays(t *testing.T) {
	u.must("", "volume", "create", "a-mount", "--shared")
	u.must("", "volume", "create", "later", "--shared")
	files := filepath.Join(u.dir, "data/volumes/a-mount/files")
	if err := unix.Mount("tmpfs", files, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	out, said, code := u.run("", "volume", "prune", "--force")
	mounts, err := filepath.Glob(u.dir + "/data/volumes/.gone-*/a-mount/files")
	if err != nil || len(mounts) != 1 {
		t.Fatalf("find the mounted volume: %v, %v", mounts, err)
	}
	if err := unix.Unmount(mounts[0], 0); err != nil {
		t.Fatal(err)
	}
	if code == 0 || !strings.Contains(out, "volume later\n") || !strings.Contains(said, "volume a-mount") {
		t.Errorf("prune: %d, %q, %q", code, out, said)
	}
}

// lasting writes to volumes of either kind with one pod, and reads them with the next.
func (u *user) lasting(t *testing.T) {
	u.must("", "volume", "create", "media", "--shared")
	for _, name := range []string{"data", "media"} {
		script := "echo one >/v/file; stat -c %u:%g:%a /v"
		if out := u.must("", "run", "--rm", "-q", "-v", name+":/v", busybox, "sh", "-c", script); out != "0:0:777\n" {
			t.Errorf("%s: its top is %q", name, out)
		}
		if out := u.must("", "run", "--rm", "-q", "-v", name+":/v:ro", busybox, "cat", "/v/file"); out != "one\n" {
			t.Errorf("%s: the next pod reads %q", name, out)
		}
	}
	if out := u.must("", "volume", "prune", "--force"); !strings.HasPrefix(out, "volume data\nvolume media\nfreed ") {
		t.Errorf("volume prune: %q", out)
	}
}
