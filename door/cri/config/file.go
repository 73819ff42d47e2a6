package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/BurntSushi/toml"
	"github.com/spf13/pflag"

	"github.com/bulkhead-project/bulkhead/internal/settings"
	"github.com/bulkhead-project/bulkhead/internal/trusted"
)

// File is the configuration file that is read by default. It may be missing.
const File = "/etc/bulkhead/config.toml"

// maxFile bounds a file, in bytes.
const maxFile = 1 << 20

// Load reads a file into the settings without a flag on the command line, according to f from Add. An empty path means
// File. Errors name the key and its line.
func (c *Config) Load(path string, f *pflag.FlagSet) error {
	named := path != ""
	if !named {
		path = File
	}
	if path == os.DevNull {
		return nil // every setting keeps its default
	}
	text, err := trusted.Read(path, maxFile)
	if errors.Is(err, fs.ErrNotExist) && !named {
		return nil
	}
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	err = c.decode(string(text), f.Changed)
	if at, ok := errors.AsType[toml.ParseError](err); ok {
		err = fmt.Errorf("line %d: %s", at.Position.Line, at.Message)
		if at.LastKey != "" {
			err = fmt.Errorf("%w (key %q)", err, at.LastKey)
		}
	}
	if err != nil {
		return fmt.Errorf("configuration %s: %w", path, err)
	}
	return nil
}

// decode sets the keys of a document. The keys for which given returns true keep their values, and are only checked.
func (c *Config) decode(text string, given func(key string) bool) error {
	known := map[string]settings.Setting{}
	for _, s := range c.settings() {
		known[s.Key] = s
	}
	var top map[string]toml.Primitive
	meta, err := toml.Decode(text, &top)
	if err != nil {
		return err
	}
	for _, key := range meta.Keys() {
		s, ok := known[key.String()]
		into := reader(func(v any) error { return read(s, v) })
		switch {
		case !ok:
			into = unknown
		case given(s.Key):
			s.Value = copyOf(s.Value)
		}
		table, last := top, len(key)-1
		for _, name := range key[:last] { // of an unknown table
			var below map[string]toml.Primitive
			if err := meta.PrimitiveDecode(table[name], &below); err != nil {
				return err
			}
			table = below
		}
		if err := meta.PrimitiveDecode(table[key[last]], into); err != nil {
			return err
		}
	}
	return nil
}

// reader stores a value. The library adds the key and line to its error.
type reader func(any) error

// UnmarshalTOML implements toml.Unmarshaler.
func (r reader) UnmarshalTOML(v any) error { return r(v) }

func unknown(any) error { return errors.New("unknown key") }

// copyOf returns a variable of the same type for a value that is only checked.
func copyOf(value any) any {
	switch value.(type) {
	case *string:
		return new(string)
	case *bool:
		return new(bool)
	}
	return new([]string)
}

// read stores a value of a document in a setting.
func read(s settings.Setting, v any) error {
	switch into := s.Value.(type) {
	case *string:
		one, ok := v.(string)
		if !ok {
			return errors.New("must be a string")
		}
		*into = one
	case *bool:
		one, ok := v.(bool)
		if !ok {
			return errors.New("must be true or false")
		}
		*into = one
	case *[]string:
		list, ok := v.([]any)
		if !ok {
			return errors.New("must be a list of strings")
		}
		all := []string{}
		for _, item := range list {
			one, ok := item.(string)
			if !ok {
				return errors.New("must be a list of strings")
			}
			all = append(all, one)
		}
		if len(all) == 0 && len(s.Preset.([]string)) > 0 {
			return errors.New("must not be an empty list")
		}
		*into = all
	}
	return nil
}
