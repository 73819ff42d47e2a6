// Package errclass gives an error a class that errors.Is finds and its message
// does not repeat.
package errclass

import "fmt"

// With is err, which errors.Is finds to be of class as well. Its message is err's.
func With(class, err error) error { return fmt.Errorf("%w%w", silent{class}, err) }

// silent is a class that adds nothing to the message.
type silent struct{ error }

func (silent) Error() string   { return "" }
func (s silent) Unwrap() error { return s.error }
