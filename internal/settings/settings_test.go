package settings

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// all has one value of each kind.
type all struct {
	Name string
	Dirs []string
	On   bool
	Many int
	Long time.Duration
}

func (a *all) table() Table {
	return Table{
		{Key: "name", Value: &a.Name, Preset: "a"},
		{Key: "dir", Value: &a.Dirs, Preset: []string{"/x", "/y"}},
		{Key: "on", Value: &a.On, Preset: false},
		{Key: "many", Value: &a.Many, Preset: 3},
		{Key: "long", Value: &a.Long, Preset: time.Second},
	}
}

func parse(t *testing.T, args ...string) all {
	t.Helper()
	var a all
	f := pflag.NewFlagSet(t.Name(), pflag.ContinueOnError)
	a.table().Add(f)
	if err := f.Parse(args); err != nil {
		t.Fatal(err)
	}
	return a
}

// TestKinds: a setting of each kind has its preset, is parsed, and is passed on unchanged.
func TestKinds(t *testing.T) {
	preset := all{"a", []string{"/x", "/y"}, false, 3, time.Second}
	if got := parse(t); !reflect.DeepEqual(got, preset) {
		t.Errorf("presets: %+v", got)
	}
	want := all{"b c", []string{"/1", "/2 3"}, true, -7, 90 * time.Second}
	got := parse(t, "--name=b c", "--dir=/1", "--dir=/2 3", "--on", "--many=-7", "--long=90s")
	if !reflect.DeepEqual(got, want) {
		t.Errorf("read: %+v", got)
	}
	if again := parse(t, got.table().Args()...); !reflect.DeepEqual(again, want) {
		t.Errorf("passed on: %+v", again)
	}
	got.Dirs[0] = "changed"
	if !slices.Equal(parse(t).Dirs, preset.Dirs) {
		t.Error("a preset was changed through a value")
	}
}

func TestChecks(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{Absolute("dir", "/a", "/b"), ""},
		{Absolute("dir", "/a", "b"), `dir "b" is not an absolute path`},
		{Logging("debug", "json"), ""},
		{Logging("loud", "json"), `log-level "loud" must be debug, info, warn or error`},
		{Logging("info", "xml"), `log-format "xml" must be text or json`},
	} {
		if got := c.err; (got == nil) != (c.want == "") || got != nil && got.Error() != c.want {
			t.Errorf("%v, want %q", got, c.want)
		}
	}
}
