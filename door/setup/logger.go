package setup

import (
	"log/slog"
	"os"

	"github.com/bulkhead-project/bulkhead/internal/pacedlog"
)

// Logger writes to stderr what is of that level at least, as text or as JSON. Repeated lines are counted.
func Logger(level, format string) (*slog.Logger, error) {
	var o slog.HandlerOptions
	least := new(slog.LevelVar)
	if err := least.UnmarshalText([]byte(level)); err != nil {
		return nil, err
	}
	o.Level = least
	if format == "json" {
		return slog.New(pacedlog.New(slog.NewJSONHandler(os.Stderr, &o))), nil
	}
	return slog.New(pacedlog.New(slog.NewTextHandler(os.Stderr, &o))), nil
}
