package config

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// TestShutdown checks that the delay of a shutdown is parsed, and that the part for critical pods lies within it.
func TestShutdown(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		period, critical string
		want, part       time.Duration
		fails            bool
	}{
		{},
		{period: "30s", want: 30 * time.Second, part: 10 * time.Second}, {period: "1m", critical: "5s", want: time.Minute, part: 5 * time.Second},
		{period: "30", fails: true}, {period: "1ms", fails: true}, {critical: "5s", fails: true}, {period: "30s", critical: "31s", fails: true},
		{period: "30s", critical: "-1s", fails: true}, {period: "30s", critical: "x", fails: true},
	} {
		c := Config{ShutdownGrace: tt.period, ShutdownGraceCritical: tt.critical}
		period, critical, err := c.Shutdown()
		if (err != nil) != tt.fails || period != tt.want || critical != tt.part {
			t.Errorf("%q, %q: %v, %v, %v", tt.period, tt.critical, period, critical, err)
		}
	}
}

// TestManifests checks that relative directories become absolute, because another program gets the settings.
func TestManifests(t *testing.T) {
	t.Chdir(t.TempDir())
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for given, want := range map[string]string{"m": filepath.Join(here, "m"), "./a/../m/": filepath.Join(here, "m"), "/etc/m": "/etc/m"} {
		var c Config
		c.Add(pflag.NewFlagSet("", pflag.ContinueOnError))
		c.Manifests, c.RootDir = given, given
		if err := c.Check(); err != nil || c.Manifests != want || c.RootDir != want || !slices.Contains(c.Args(), "--manifests="+want) {
			t.Errorf("%s: %s, %s, %v", given, c.Manifests, c.RootDir, err)
		}
	}
}

// TestMinImageAge checks that the minimum age of images is a duration and may be zero.
func TestMinImageAge(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{"2m": 2 * time.Minute, "0s": 0, "": -1, "5": -1, "-1s": -1, "x": -1} {
		got, err := (&Config{ImageMinAge: text}).MinImageAge()
		if (err != nil) != (want < 0) || err == nil && got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}
