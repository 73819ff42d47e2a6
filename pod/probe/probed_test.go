package probe

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestProbed: Probed is called for probes that count, with their durations, and not for failed early looks.
func TestProbed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow := func(result Result, err error) func(time.Duration) (Result, string, error) {
			return func(time.Duration) (Result, string, error) {
				time.Sleep(time.Second)
				return result, "", err
			}
		}
		var mu sync.Mutex
		told := map[string]int{}
		watch(t, nil, spec(), spec(), map[Kind]func(time.Duration) (Result, string, error){
			Liveness:  until(15*time.Second, slow(Warning, nil), slow(Unknown, errors.New("no answer"))),
			Readiness: until(25*time.Second, slow(Failure, nil), slow(Success, nil)),
		}, func(o *Options) {
			o.Probed = func(kind Kind, result Result, took time.Duration) {
				mu.Lock()
				defer mu.Unlock()
				told[fmt.Sprint(kind, " ", result, " ", took)]++
			}
		})
		time.Sleep(35 * time.Second)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		want := map[string]int{
			"Liveness warning 1s": 1, "Liveness unknown 3s": 2, "Readiness failure 1s": 2, "Readiness success 1s": 1,
		}
		if diff := cmp.Diff(want, told); diff != "" {
			t.Error(diff)
		}
	})
}
