//! Command codes of protocol 0.11.0, and the operation each travels as. A code stands in the
//! header of non-replicated requests only; elsewhere the operation says it all.

use core::fmt;

use crate::Operation;

macro_rules! codes {
    ($($name:ident = $value:literal $text:literal $operation:ident,)*) => {
        /// A command of the client protocol.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        pub enum Code {
            $(#[doc = concat!("`", $text, "`")] $name = $value,)*
        }

        impl Code {
            /// All codes, in ascending order.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The command with this number, if there is one.
            #[must_use]
            pub const fn from_number(number: u32) -> Option<Self> {
                match number {
                    $($value => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// The operation it travels as.
            #[must_use]
            pub const fn operation(self) -> Operation {
                match self {
                    $(Self::$name => Operation::$operation,)*
                }
            }

            /// The command that travels as `operation`: [`Self::LoginRegister`] for both
            /// logins, `None` if the operation does not say it.
            #[must_use]
            #[allow(unreachable_patterns)] // two logins are one operation
            pub const fn of_operation(operation: Operation) -> Option<Self> {
                match operation {
                    Operation::NonReplicated => None,
                    $(Operation::$operation => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// Its name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

codes! {
    Ping = 1 "ping" NonReplicated,
    GetStats = 10 "get_stats" NonReplicated,
    GetSnapshot = 11 "get_snapshot" NonReplicated,
    GetClusterMetadata = 12 "get_cluster_metadata" NonReplicated,
    DescribeOptions = 13 "describe_options" NonReplicated,
    AttachConsumerSession = 14 "attach_consumer_session" NonReplicated,
    GetMe = 20 "get_me" NonReplicated,
    GetClient = 21 "get_client" NonReplicated,
    GetClients = 22 "get_clients" NonReplicated,
    GetUser = 31 "get_user" NonReplicated,
    GetUsers = 32 "get_users" NonReplicated,
    CreateUser = 33 "create_user" CreateUser,
    DeleteUser = 34 "delete_user" DeleteUser,
    UpdateUser = 35 "update_user" UpdateUser,
    UpdatePermissions = 36 "update_permissions" UpdatePermissions,
    ChangePassword = 37 "change_password" ChangePassword,
    LoginUser = 38 "login_user" NonReplicated,
    Logout = 39 "logout" Logout,
    LoginRegister = 40 "login_register" Register,
    GetPersonalAccessTokens = 41 "get_personal_access_tokens" NonReplicated,
    CreatePersonalAccessToken = 42 "create_personal_access_token" CreatePersonalAccessToken,
    DeletePersonalAccessToken = 43 "delete_personal_access_token" DeletePersonalAccessToken,
    LoginWithPersonalAccessToken = 44 "login_with_personal_access_token" NonReplicated,
    LoginRegisterWithPersonalAccessToken = 45 "login_register_with_personal_access_token" Register,
    PollMessages = 100 "poll_messages" NonReplicated,
    SendMessages = 101 "send_messages" SendMessages,
    FlushUnsavedBuffer = 102 "flush_unsaved_buffer" NonReplicated,
    PollRouting = 103 "poll_routing" NonReplicated,
    PollOnPrimary = 104 "poll_on_primary" NonReplicated,
    GetConsumerOffset = 120 "get_consumer_offset" NonReplicated,
    StoreConsumerOffset = 121 "store_consumer_offset" StoreConsumerOffset,
    DeleteConsumerOffset = 122 "delete_consumer_offset" DeleteConsumerOffset,
    ConsumerOffsetRouting = 123 "consumer_offset_routing" NonReplicated,
    GetStream = 200 "get_stream" NonReplicated,
    GetStreams = 201 "get_streams" NonReplicated,
    CreateStream = 202 "create_stream" CreateStream,
    DeleteStream = 203 "delete_stream" DeleteStream,
    UpdateStream = 204 "update_stream" UpdateStream,
    PurgeStream = 205 "purge_stream" PurgeStream,
    GetTopic = 300 "get_topic" NonReplicated,
    GetTopics = 301 "get_topics" NonReplicated,
    CreateTopic = 302 "create_topic" CreateTopic,
    DeleteTopic = 303 "delete_topic" DeleteTopic,
    UpdateTopic = 304 "update_topic" UpdateTopic,
    PurgeTopic = 305 "purge_topic" PurgeTopic,
    CreatePartitions = 402 "create_partitions" CreatePartitions,
    DeletePartitions = 403 "delete_partitions" DeletePartitions,
    DeleteSegments = 503 "delete_segments" DeleteSegments,
    GetConsumerGroup = 600 "get_consumer_group" NonReplicated,
    GetConsumerGroups = 601 "get_consumer_groups" NonReplicated,
    CreateConsumerGroup = 602 "create_consumer_group" CreateConsumerGroup,
    DeleteConsumerGroup = 603 "delete_consumer_group" DeleteConsumerGroup,
    JoinConsumerGroup = 604 "join_consumer_group" JoinConsumerGroup,
    LeaveConsumerGroup = 605 "leave_consumer_group" LeaveConsumerGroup,
    SyncConsumerGroup = 606 "sync_consumer_group" NonReplicated,
}

impl Code {
    /// Its number.
    #[must_use]
    pub const fn number(self) -> u32 {
        self as u32
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_found_by_its_number() {
        assert_eq!(Code::ALL.len(), 55);
        for &code in Code::ALL {
            assert_eq!(Code::from_number(code.number()), Some(code));
            let found = Code::of_operation(code.operation());
            let is_named = !matches!(code.operation(), Operation::NonReplicated);
            assert_eq!(found.is_some(), is_named);
        }
        assert_eq!(Code::from_number(2), None);
    }
}
