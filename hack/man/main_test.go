package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli"
)

// TestPages expects a page with examples for each command, and the same pages the second time.
func TestPages(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1767225600")
	dir, again := t.TempDir(), t.TempDir()
	for _, d := range []string{dir, again} {
		if err := write("1.2.3", d); err != nil {
			t.Fatal(err)
		}
	}
	var look func(cmd *cobra.Command)
	look = func(cmd *cobra.Command) {
		name := strings.ReplaceAll(cmd.CommandPath(), " ", "-") + ".1"
		page, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Error(err)
			return
		}
		if text := string(page); !strings.Contains(text, "Bulkhead 1.2.3") || !strings.Contains(text, "Jan 2026") ||
			!strings.Contains(text, ".SH EXAMPLE") || strings.Contains(text, "Auto generated") {
			t.Errorf("%s: %s", name, text)
		}
		other, err := os.ReadFile(filepath.Join(again, name))
		if err != nil || string(other) != string(page) {
			t.Errorf("%s differs the second time: %v", name, err)
		}
		for _, sub := range cmd.Commands() {
			look(sub)
		}
	}
	look(cli.Command())
	for _, name := range []string{"bulkhead-oci.1", "bulkhead-oci-create.1"} {
		page, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !strings.Contains(string(page), "Bulkhead 1.2.3") {
			t.Errorf("%s: %v: %s", name, err, page)
		}
	}
}
