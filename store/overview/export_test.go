package overview

import "time"

// SetAge sets how old a shared board may be.
func (b *Board) SetAge(age time.Duration) { b.age = age }
