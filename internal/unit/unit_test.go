package unit

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testlogind"
)

// systemd is a fake with the calls that this package uses.
type systemd struct {
	conn    *dbus.Conn
	there   bool   // the unit
	result  string // of its start
	mu      sync.Mutex
	entered []string
}

func (s *systemd) addEntered(group string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entered = append(s.entered, group)
}

func (s *systemd) Subscribe() *dbus.Error { return nil }

func (s *systemd) StartTransientUnit(name, mode string, properties []property, _ []auxiliary) (dbus.ObjectPath, *dbus.Error) {
	if s.there {
		return "", dbus.NewError(exists, []any{"Unit " + name + " was already loaded"})
	}
	values := map[string]any{}
	for _, p := range properties {
		values[p.Name] = p.Value.Value()
	}
	pids, _ := values["PIDs"].([]uint32)
	if mode != "fail" || values["Delegate"] != true || !slices.Equal(pids, []uint32{uint32(os.Getpid())}) {
		return "", dbus.MakeFailedError(errors.New("not asked for a scope"))
	}
	s.addEntered(name)
	const job = dbus.ObjectPath("/org/freedesktop/systemd1/job/7")
	for _, ended := range []dbus.ObjectPath{job + "1", job} { // another's before, and before the answer
		if err := s.conn.Emit(path, manager+".JobRemoved", uint32(7), ended, name, s.result); err != nil {
			return "", dbus.MakeFailedError(err)
		}
	}
	return job, nil
}

func (s *systemd) AttachProcessesToUnit(name, group string, _ []uint32) *dbus.Error {
	s.addEntered(name + group)
	return nil
}

// TestEnter: Enter waits for a new scope, joins an existing one, and returns a refusal.
func TestEnter(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		there         bool
		group, result string
		want, refuse  string
	}{
		"new":                             {group: "/own", result: "done", want: "x.scope"},
		"there":                           {there: true, group: "/own", want: "x.scope/own"},
		"there with version 1 of cgroups": {there: true, want: "x.scope"},
		"failed":                          {group: "/own", result: "failed", want: "x.scope", refuse: "ended as failed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := testlogind.Bus(t)
			conn, err := dbus.Connect(address)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
			s := &systemd{conn: conn, there: tc.there, result: tc.result}
			if err := conn.Export(s, path, manager); err != nil {
				t.Fatal(err)
			}
			if _, err := conn.RequestName(service, dbus.NameFlagDoNotQueue); err != nil {
				t.Fatal(err)
			}
			err = enterScope(testdeadline.Context(t, 5*time.Second), address, "x.scope", tc.group)
			if (err == nil) != (tc.refuse == "") || err != nil && !strings.Contains(err.Error(), tc.refuse) {
				t.Errorf("%v", err)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if !slices.Equal(s.entered, []string{tc.want}) {
				t.Errorf("entered %q", s.entered)
			}
		})
	}
	if err := enterScope(context.Background(), "unix:path=/nonexistent", "x.scope", ""); err == nil {
		t.Error("entered without a bus")
	}
}
