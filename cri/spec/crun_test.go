package spec

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// guestCrun is the guest's runtime, as built for the guest.
const guestCrun = "../../build/crun/crun"

// runInCrun runs script under busybox with a specification made from config, with the guest's runtime on the host. It
// returns the output. The runtime refuses the host's mixed cgroup hierarchy, so it gets a mount namespace with only
// one.
func runInCrun(t *testing.T, config *runtimeapi.ContainerConfig, script string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: the guest's runtime is run as the guest's agent runs it")
	}
	crun, err := filepath.Abs(guestCrun)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(crun); err != nil {
		t.Fatalf("the guest's runtime is not built (make guest): %v", err)
	}
	config.Command = []string{"/bin/busybox", "sh", "-c", script}
	spec, err := whole(Input{ID: "bulkhead-oci-test", Container: config})
	if err != nil {
		t.Fatal(err)
	}
	// The host's cgroups are not the guest's.
	spec.Linux.CgroupsPath = ""
	spec.Linux.Resources = nil
	spec.Process.OOMScoreAdj = nil
	for i, mount := range spec.Mounts {
		if mount.Type == "cgroup" {
			spec.Mounts = append(spec.Mounts[:i], spec.Mounts[i+1:]...)
			break
		}
	}
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "rootfs", "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	busybox, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Fatalf("busybox-static is needed: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "rootfs", "bin", "busybox"), busybox, 0o755); err != nil {
		t.Fatal(err)
	}
	spec.Process.Rlimits = nil // the host may not allow higher limits
	data, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx := testdeadline.Context(t, 30*time.Second)
	command := exec.CommandContext(ctx, "unshare", "--mount", "--fork", "sh", "-c",
		`umount /sys/fs/cgroup/unified 2>/dev/null; exec "$0" --root "$1/state" --cgroup-manager disabled run --bundle "$1" "$2"`,
		crun, dir, filepath.Base(dir)+"-"+strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-")))
	var out, errs bytes.Buffer
	command.Stdout, command.Stderr = &out, &errs
	if err := command.Run(); err != nil {
		t.Fatalf("crun: %v: %s%s", err, out.String(), errs.String())
	}
	return out.String()
}

func TestCrunAcceptsTheDefaults(t *testing.T) {
	out := runInCrun(t, container(), `cat /proc/self/status; grep -c . /proc/kcore; touch /proc/sys/kernel/hostname &&
		echo hello > /proc/sys/kernel/hostname; exit 0`)
	for _, want := range []string{"Seccomp:\t2", "CapBnd:\t00000000a80425fb", "NoNewPrivs:\t0"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in %s", want, out)
		}
	}
}

func TestCrunAppliesTheProfile(t *testing.T) {
	script := `busybox=/bin/busybox
$busybox mount -t tmpfs none /mnt 2>&1
$busybox unshare -m true 2>&1
$busybox reboot -f 2>&1
echo "forked: $($busybox echo yes)"
exit 0`
	out := runInCrun(t, container(), script)
	if strings.Count(out, "not permitted")+strings.Count(out, "denied") < 3 || !strings.Contains(out, "forked: yes") {
		t.Errorf("said %s", out)
	}
}

func TestCrunUnconfinedAndNothing(t *testing.T) {
	config := container()
	security := config.Linux.SecurityContext
	security.Seccomp.ProfileType = runtimeapi.SecurityProfile_Unconfined
	security.Capabilities = &runtimeapi.Capability{DropCapabilities: []string{"ALL"}}
	security.NoNewPrivs, security.ReadonlyRootfs = true, true
	out := runInCrun(t, config, `cat /proc/self/status; echo x > /file; exit 0`)
	for _, want := range []string{"Seccomp:\t0", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in %s", want, out)
		}
	}
}

func TestCrunWithCapability(t *testing.T) {
	config := container()
	config.Linux.SecurityContext.Capabilities = &runtimeapi.Capability{AddCapabilities: []string{"SYS_ADMIN"}}
	out := runInCrun(t, config, `mkdir /m && mount -t tmpfs none /m && echo mounted; grep Seccomp: /proc/self/status`)
	if !strings.Contains(out, "mounted") || !strings.Contains(out, "Seccomp:\t2") {
		t.Errorf("said %s", out)
	}
}
