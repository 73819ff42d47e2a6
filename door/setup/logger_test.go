package setup

import (
	"log/slog"
	"testing"
)

// TestLogger: the log has the format and the least level that it is told.
func TestLogger(t *testing.T) {
	for format, want := range map[string]bool{"text": false, "json": true} {
		log, err := Logger("warn", format)
		if err != nil {
			t.Fatal(err)
		}
		if _, json := log.Handler().(*slog.JSONHandler); json != want {
			t.Errorf("%s: %T", format, log.Handler())
		}
		if log.Enabled(t.Context(), slog.LevelInfo) || !log.Enabled(t.Context(), slog.LevelWarn) {
			t.Errorf("%s: not from warn on", format)
		}
	}
	if _, err := Logger("loud", "text"); err == nil {
		t.Error("a level that there is not")
	}
}
