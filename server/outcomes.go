package server

import (
	"fmt"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/storage"
)

// itemFailure is the error of an item that the storage did not apply; nil where it
// did.
func itemFailure(status storage.ItemStatus, cause storage.LostCause, outcome storage.Outcome) error {
	switch status {
	case storage.ItemApplied, storage.ItemAlreadySettled:
		return nil
	case storage.ItemSettled:
		return &apiError{
			reason:   queueboxv1.ErrorReason_ERROR_REASON_CLAIM_SETTLED,
			text:     "this claim was settled before, in another way (" + outcomeName(outcome) + "); nothing changed; a claim is settled once",
			metadata: map[string]string{"outcome": outcomeName(outcome)},
		}
	case storage.ItemLost:
		return claimLost(cause)
	case storage.ItemNotFound:
		return messageNotFound()
	case storage.ItemUnknown, storage.ItemHeld:
		return &apiError{
			reason: queueboxv1.ErrorReason_ERROR_REASON_STORAGE_UNAVAILABLE,
			text:   "another transaction holds the row of this message; nothing changed by this call; repeat it",
		}
	case storage.ItemKeyReused:
		// Only a completion has follow-ups, and it names the one.
	}
	return fmt.Errorf("item status %d", status)
}

func claimLost(cause storage.LostCause) error {
	name, why := "NOT_CLAIMED", "the message is not claimed, and this token never held it"
	switch cause {
	case storage.LostLeaseExpired:
		name, why = "LEASE_EXPIRED", "the lease ran out before this call"
	case storage.LostSuperseded:
		name, why = "SUPERSEDED", "another claim holds or finished the message"
	case storage.LostRevoked:
		name, why = "REVOKED", "an operator took the claim away"
	case storage.LostCancelled:
		name, why = "CANCELLED", "the message was cancelled after the claim ended"
	case storage.LostNotClaimed:
	}
	return &apiError{
		reason:   queueboxv1.ErrorReason_ERROR_REASON_CLAIM_LOST,
		text:     "the claim is lost: " + why + "; nothing changed; stop the work, roll back and do not repeat the call",
		metadata: map[string]string{"cause": name},
	}
}

func outcomeName(o storage.Outcome) string {
	switch o {
	case storage.OutcomeCompleted:
		return "COMPLETED"
	case storage.OutcomeRetried:
		return "RETRIED"
	case storage.OutcomeDead:
		return "DEAD"
	case storage.OutcomeReleased:
		return "RELEASED"
	case storage.OutcomeCancelled:
		return "CANCELLED"
	case storage.OutcomeNone:
	}
	return "UNSPECIFIED"
}
