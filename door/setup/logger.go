package setup

import (
	"log/slog"
	"os"

	"github.com/bulkhead-project/bulkhead/internal/pacedlog"
)

// Logger returns a logger to stderr with a minimum level, in text or JSON. It counts repeated lines.
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
