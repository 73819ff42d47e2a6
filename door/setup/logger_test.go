package setup

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLogger: the log has the requested format and minimum level.
func TestLogger(t *testing.T) {
	before := os.Stderr
	defer func() { os.Stderr = before }()
	for format, want := range map[string]bool{"text": false, "json": true} {
		path := filepath.Join(t.TempDir(), "log")
		var err error
		if os.Stderr, err = os.Create(path); err != nil {
			t.Fatal(err)
		}
		log, err := Logger("warn", format)
		if err != nil {
			t.Fatal(err)
		}
		for range 1000 {
			log.Warn("again")
		}
		text, err := os.ReadFile(path)
		if lines := strings.Count(string(text), "\n"); err != nil || strings.HasPrefix(string(text), "{") != want || lines > 100 {
			t.Errorf("%s: %d lines, %v: %.200s", format, lines, err, text)
		}
		if log.Enabled(t.Context(), slog.LevelInfo) || !log.Enabled(t.Context(), slog.LevelWarn) {
			t.Errorf("%s: the minimum level is not warn", format)
		}
	}
	if _, err := Logger("loud", "text"); err == nil {
		t.Error("an unknown level is accepted")
	}
}
