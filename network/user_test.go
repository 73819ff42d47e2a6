package network

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testproc"
	"github.com/bulkhead-project/bulkhead/shim/uids"
)

func TestUserNetwork(t *testing.T) {
	const closed = "nameserver " + stubIP + "\nnameserver " + metadataIP + "\nsearch own.example\n"
	for _, tc := range []struct {
		who, resolvConf string
		test            func(*testing.T)
	}{
		{who: "root", resolvConf: closed, test: testUser},
		{who: "ordinary", resolvConf: closed, test: testUser},
		{who: "root with an outside resolver", resolvConf: "nameserver " + serverIP + "\n", test: testNames},
	} {
		who := strings.ReplaceAll(tc.who, " ", "_")
		t.Run(who, func(t *testing.T) {
			t.Parallel()
			if os.Getenv(inside) == "" {
				enterWorld(t, who, tc.resolvConf)
				return
			}
			tc.test(t)
		})
	}
}

// resolves: if the host's name servers are out of reach, pods get the answers of the host's resolver, and no other
// service of that address.
func resolves(t *testing.T, a Attachment) {
	if diff := cmp.Diff(DNS{Servers: []string{hostDNS}, Searches: []string{"own.example"}}, a.DNS); diff != "" {
		t.Error(diff)
	}
	stub, err := net.ListenPacket("udp", stubIP+":53")
	if err != nil {
		t.Fatal(err)
	}
	defer stub.Close()
	go answerNames(stub)
	out, err := ask(a, hostDNS)
	if err != nil || out != "hello" {
		t.Errorf("the host's resolver: %q, %v", out, err)
	}
	if reaches(a, hostDNS, "8088") {
		t.Error("the resolver's address leads to the host's services")
	}
}

// testNames: pods use a name server of the host directly if they can reach it.
func testNames(t *testing.T) {
	u := NewUser(t.Context(), t.TempDir(), false)
	t.Cleanup(func() {
		if err := u.Release(context.Background()); err != nil {
			t.Error(err)
		}
	})
	a, err := u.Attach(t.Context(), Request{ID: "pod"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(DNS{Servers: []string{serverIP}}, a.DNS); diff != "" {
		t.Error(diff)
	}
	if out, err := ask(a, serverIP); err != nil || out != "hello" {
		t.Errorf("the host's name server: %q, %v", out, err)
	}
}

// ownUser: processes of the user nobody, which other programs use too, cannot join the pods' network and listen to it.
func ownUser(ctx context.Context, t *testing.T, u *User) {
	r, err := u.ns.ensure(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []procid.ID{r.Holder, r.Pasta} {
		if !procid.RunsAs(id.PID, uids.Network) {
			t.Errorf("process %d is not of the network's own user", id.PID)
		}
	}
	for uid, want := range map[uint32]bool{65534: false, uids.First: false, uids.Network: true} {
		join := exec.Command("nsenter", "--target", strconv.Itoa(r.Holder.PID), "--user", "--net", "--preserve-credentials", "true")
		join.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		if out, err := join.CombinedOutput(); (err == nil) != want {
			t.Errorf("user %d joins the network: %v, want %v: %s", uid, err == nil, want, out)
		}
	}
}

func testUser(t *testing.T) {
	ctx := testdeadline.Context(t, 40*time.Second)
	l, err := net.Listen("tcp", ":8088") // the host's own service
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go answer(l)
	host := Attachment{Start: (*exec.Cmd).Start}
	dir := t.TempDir()
	u := NewUser(ctx, dir, false)
	if kind, reason := u.Kind(); kind != KindUser || reason != "" {
		t.Fatalf("kind %s, reason %q", kind, reason)
	}
	a, err := u.Attach(ctx, Request{ID: "pod"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, address, port string
		want                bool
	}{
		{"the outside answers", serverIP, "80", true},
		{"the host's loopback does not", "127.0.0.1", "8088", false},
		{"nor through the namespace's own address", hostIP, "8088", false},
		{"nor through the gateway", "10.0.2.2", "8088", false},
		{"nor another address of the host", bridgeIP, "8088", false},
		{"nor its unique local address", uniqueIP, "8088", false},
		{"nor its link-local address", linkIP + "%tohost0", "8088", false},
		{"nor link-local addresses of the outside", metadataIP, "80", false},
	} {
		if tc.address != "10.0.2.2" {
			until(ctx, t, tc.name+": the host itself reaches it", func() bool { return reaches(host, tc.address, tc.port) })
		}
		if tc.want {
			until(ctx, t, tc.name, func() bool { return reaches(a, tc.address, tc.port) })
		} else if reaches(a, tc.address, tc.port) {
			t.Errorf("%s: it does", tc.name)
		}
	}

	// The host's services would receive multicast too.
	multicast := exec.Command("bash", "-c", "exec 3<>/dev/udp/224.0.0.251/5353")
	if err := a.Start(multicast); err != nil {
		t.Fatal(err)
	}
	if multicast.Wait() == nil {
		t.Error("multicast is not closed")
	}
	if os.Geteuid() == 0 {
		ownUser(ctx, t, u)
	}
	resolves(t, a)

	// A new address of the host is closed to pods, and an address that the host has lost is opened again.
	command(t, "addr add "+laterIP+"/24 dev docker0")
	until(ctx, t, "the host reaches its new address", func() bool { return reaches(host, laterIP, "8088") })
	until(ctx, t, "a new address is closed", func() bool { return !reaches(a, laterIP, "8088") })
	command(t, "addr del "+laterIP+"/24 dev docker0")
	command(t, "route add "+laterIP+" via "+serverIP)
	until(ctx, t, "an address that went elsewhere is open", func() bool { return reaches(a, laterIP, "80") })

	// Another engine finds the same namespace, and replaces a dead one.
	other := NewUser(ctx, dir, false)
	first, err := u.ns.ensure(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []procid.ID{first.Holder, first.Pasta} {
		// pasta's environment is readable only for root.
		if env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", id.PID)); err == nil && strings.Contains(string(env), inside) {
			t.Errorf("process %d has the engine's environment", id.PID)
		} else if err != nil && os.Geteuid() == 0 {
			t.Error(err)
		}
	}
	if again, err := other.ns.ensure(ctx); err != nil || !cmp.Equal(again, first) {
		t.Errorf("a second engine got %v, %v, want %v", again, err, first)
	}
	for range 2 {
		other.Close()
	}
	if !first.alive() {
		t.Error("the namespace ends with its engine")
	}
	if err := first.Pasta.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := first.Pasta.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	if a, err = u.Attach(ctx, Request{ID: "pod"}); err != nil {
		t.Fatal(err)
	}
	if out, err := fetch(a, serverIP, "80"); err != nil || out != "hello" {
		t.Errorf("after pasta's death: %q, %v", out, err)
	}
	last, err := u.ns.ensure(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := u.Release(ctx); err != nil {
		t.Fatal(err)
	}
	// A namespace of an earlier version is removed too.
	old := record{Holder: testproc.Start(t, exec.Command("cat")), Pasta: testproc.Start(t, exec.Command("cat"))}
	if err := atomicfile.WriteJSON(filepath.Join(dir, "netns.json"), old, 0o600, atomicfile.Volatile); err != nil {
		t.Fatal(err)
	}
	// The next engine removes the processes of an engine that was killed meanwhile.
	half, err := create(ctx, dir, func(r record) error {
		if r.Holder.PID != 0 {
			return nil
		}
		return u.ns.write(r)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := u.Release(ctx); err != nil {
		t.Fatal(err)
	}
	for _, id := range []procid.ID{first.Holder, last.Holder, last.Pasta, half.Holder, half.Pasta, old.Holder, old.Pasta} {
		if id.Alive() {
			t.Errorf("process %d is left", id.PID)
		}
	}
	if err := u.Release(ctx); err != nil {
		t.Errorf("a second release: %v", err)
	}
	left, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range left {
		if f.Name() != "netns.lock" {
			t.Errorf("%s is left", f.Name())
		}
	}
}
